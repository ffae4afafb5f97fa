"""No group in ZooKeeper costs more than its size; `make scale` tries larger sizes."""

import pytest

from tests.scale.cost import complaints
from tests.scale.stage import Row
from tests.scale.zookeeper import ZOOKEEPER_ROWS


@pytest.mark.parametrize("row", ZOOKEEPER_ROWS, ids=lambda row: row.name)
def test_cost_grows_at_most_linearly(row: Row) -> None:
    costs = {size: row.measure(size) for size in row.small}

    assert complaints(costs, row.turn_bound) == [], costs
