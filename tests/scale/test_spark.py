"""No query's cost grows faster than its partitions; `make scale` tries larger numbers."""

import pytest

from tests.scale.cost import complaints
from tests.scale.spark import SPARK_ROWS, TASK_ROWS, PlainRow
from tests.scale.stage import Row


@pytest.mark.parametrize("row", [*SPARK_ROWS, *TASK_ROWS], ids=lambda row: row.name)
def test_cost_grows_at_most_linearly(row: PlainRow | Row) -> None:
    costs = {size: row.measure(size) for size in row.small}

    assert complaints(costs, row.turn_bound) == [], costs
