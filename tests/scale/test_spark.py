"""No driver's cost grows faster than its partitions; `make scale` tries larger numbers."""

import pytest

from tests.scale.cost import complaints
from tests.scale.spark import SPARK_ROWS, PlainRow


@pytest.mark.parametrize("row", SPARK_ROWS, ids=lambda row: row.name)
def test_cost_grows_at_most_linearly(row: PlainRow) -> None:
    costs = {size: row.measure(size) for size in row.small}

    assert complaints(costs, row.turn_bound) == [], costs
