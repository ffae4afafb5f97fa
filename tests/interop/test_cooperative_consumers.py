"""Stock consumers that rebalance cooperatively (KIP-429): who keeps a partition goes on with it."""

import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from groups.coordinator.membership.state import GroupState
from tests.interop.driven_group import DrivenGroup, Writer
from tests.interop.stock_consumers import (
    COOPERATIVE,
    FRANZ_GO,
    JAVA_2_8,
    KINDS,
    LIBRDKAFKA,
    Kind,
)
from tests.interop.traffic import new_topic
from tests.stage.cluster import DevCluster

PARTITIONS = 12
SETTINGS = ("--set", "group.initial.rebalance.delay.ms=0")

MIXED = (JAVA_2_8, LIBRDKAFKA, FRANZ_GO)
CASTS = [
    pytest.param(MIXED, id="mixed"),
    *(
        pytest.param((kind,) * 3, id=kind.name, marks=pytest.mark.product)
        for kind in KINDS
        if COOPERATIVE in kind.strategies
    ),
]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with DevCluster(tmp_path_factory.mktemp("cooperative"), SETTINGS) as cluster:
        yield cluster.address("bootstrap")


@pytest.mark.parametrize("kinds", CASTS)
async def test_partitions_that_members_keep_are_consumed_while_a_rebalance_hangs(
    bootstrap: str, kinds: tuple[Kind, ...], tmp_path: Path
) -> None:
    topic, group_id = await new_topic(bootstrap, PARTITIONS), f"g-{uuid4().hex[:8]}"
    topics = {topic: PARTITIONS}
    with DrivenGroup(bootstrap, group_id, topics, [COOPERATIVE], tmp_path) as group:
        async with Writer(bootstrap, group.partitions) as writer:
            keepers = [group.start(kind) for kind in kinds]
            stopped = group.start(LIBRDKAFKA)
            await group.settled()

            # A member that does nothing keeps the others waiting for as long as its session lasts.
            async with group.without(stopped):
                group.start(LIBRDKAFKA)
                await group.reaches(GroupState.PREPARING_REBALANCE)
                hangs_ms, held = now_ms(), {member.name: member.owned for member in keepers}
                await group.reaches(GroupState.STABLE)
                ends_ms = now_ms()
                await group.settled()
            await group.settled()

        for member in keepers:
            meanwhile = {m.partition for m in member.messages if hangs_ms < m.at_ms < ends_ms}
            assert held[member.name] <= meanwhile, member.describe()

        await group.consumes(writer.values)
        await group.commits_all()
        await group.check()


def now_ms() -> int:
    """Return the wall clock, which drivers show too."""
    return time.time_ns() // 1_000_000
