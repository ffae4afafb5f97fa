"""The cost of a fetch round follows what is new, not the number of idle partitions."""

from __future__ import annotations

import asyncio

from broker.replication.fetch_sessions import NAMED_AT_ONCE
from protocol.topic_partition import TopicPartition
from tests.broker.replication.fetching_pair import FetchingPair
from tests.broker.replication.replicas import NOW_MS
from tests.stage.bytecodes import bytecodes_of

LAG_MS = 10_000
FEW, MORE = 300, (1_000, 3_300, 10_000)


def costs(partitions: int) -> dict[str, int]:
    return asyncio.run(costs_of(FetchingPair(partitions)))


async def costs_of(pair: FetchingPair) -> dict[str, int]:
    # All are named, some a round.
    for _ in range(3 + max(FEW, *MORE) // NAMED_AT_ONCE):
        pair.round()
    await asyncio.sleep(0)
    costs = {"idle": bytecodes_of(pair.round)}

    def traffic() -> None:
        pair.round(lambda: pair.append(7))
        pair.round()

    for _ in range(2):  # the first record of a log costs an epoch
        traffic()
    await asyncio.sleep(0)
    costs["one append"] = bytecodes_of(traffic)
    pair.round()
    await asyncio.sleep(0)
    check = pair.replicas.manager.follower_progress.shrink_isrs
    for _ in range(2):  # the first after a while looks on
        check(pair.now_ms)
    costs["check of in-sync replicas"] = bytecodes_of(lambda: check(pair.now_ms))
    return costs


def test_a_round_costs_the_same_whatever_is_idle() -> None:
    few = costs(FEW)
    assert few["idle"] < 2_400 < few["one append"]
    for partitions in MORE:
        assert costs(partitions) == few


async def test_an_idle_follower_stays_in_sync_and_one_that_is_silent_does_not() -> None:
    pair = FetchingPair(3)
    manager = pair.replicas.manager
    tp = TopicPartition("t", 1)
    for _ in range(100):
        pair.round()
    pair.replicas.manager.follower_progress.shrink_isrs(NOW_MS)
    follower = manager.partition(tp).followers[1]
    assert follower.caught_up_ms == NOW_MS  # the time that requests are given in these tests
    pair.append(1)
    manager.follower_progress.shrink_isrs(NOW_MS + LAG_MS)
    assert pair.replicas.proposals == []
    manager.follower_progress.shrink_isrs(NOW_MS + LAG_MS + 1)
    assert [change.topic_partition for change in pair.replicas.proposals] == [tp]
