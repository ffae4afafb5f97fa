"""Stock consumers of every kind subscribe: each kind in a group of its own.

`make test` runs each kind once, with the strategy it begins with; `make interop` all strategies.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.interop.driven_group import DrivenGroup, Writer
from tests.interop.stock_consumers import KINDS, Kind
from tests.interop.traffic import new_topic
from tests.stage.cluster import DevCluster

PARTITIONS = 4
SETTINGS = ("--set", "group.initial.rebalance.delay.ms=0")

ALL = [
    pytest.param(
        kind,
        strategy,
        id=f"{kind}-{strategy}",
        marks=() if strategy == kind.first_strategy else pytest.mark.product,
    )
    for kind in KINDS
    for strategy in kind.strategies
]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with DevCluster(tmp_path_factory.mktemp("consumers"), SETTINGS) as cluster:
        yield cluster.address("bootstrap")


@pytest.mark.parametrize(("kind", "strategy"), ALL)
async def test_consumers_of_a_kind_share_partitions_and_take_over_from_one_that_leaves(
    bootstrap: str, kind: Kind, strategy: str, tmp_path: Path
) -> None:
    topic, group_id = await new_topic(bootstrap, PARTITIONS), f"g-{uuid4().hex[:8]}"
    topics = {topic: PARTITIONS}
    with DrivenGroup(bootstrap, group_id, topics, [strategy], tmp_path) as group:
        async with Writer(bootstrap, group.partitions) as writer:
            first = group.start(kind)
            await group.settled()
            assert first.owned == set(group.partitions)

            second = group.start(kind)
            await group.settled()
            assert (len(first.owned), len(second.owned)) == (2, 2)

            await group.stop(second)
            await group.settled()
            assert first.owned == set(group.partitions)

        await group.consumes(writer.values)
        await group.commits_all()
        await group.check()
        await asyncio.to_thread(first.stop)
