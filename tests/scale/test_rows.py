"""No cost grows faster than what is worked on; `make scale` tries larger sizes."""

import pytest

from tests.scale.cost import complaints
from tests.scale.rows import ROWS
from tests.scale.stage import Row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_cost_grows_at_most_linearly(row: Row) -> None:
    costs = {size: row.measure(size) for size in row.small}

    assert complaints(costs, row.turn_bound) == [], costs
