"""Fetch under a replication quota: which replicas get nothing while it is exceeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from broker.network.purgatory import Wait
from core_log.config import LogConfig
from protocol.messages.fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from protocol.topic_partition import TopicPartition
from tests.broker.fetch_requests import handle
from tests.broker.replication.replicas import Replicas, batch

SIZE = len(batch(b"a"))
IN_SYNC, LAGGING, CONSUMER = 1, 2, -1


def leading(*listed: str, partitions: int = 1, limit: int = 1) -> Replicas:
    """Broker 0 leads "t", which lists these replicas as throttled, and 1 is in sync."""
    config = LogConfig(leader_replication_throttled_replicas=listed)
    replicas = Replicas(config=config).lead("t", partitions, isr=(0, 1), replicas=(0, 1, 2))
    for index in range(partitions):
        replicas.manager.append(
            TopicPartition("t", index),
            batch(b"a"),
            all_in_sync=False,
            zstd_allowed=True,
            now_ms=0,
        )
        # As if the record had been there, and committed, when the epoch began: it never had all.
        partition = replicas.manager.partition(TopicPartition("t", index))
        partition.followers[LAGGING].leader_end_at_last_fetch = 1
        partition.high_watermark = 1
    replicas.leader_quota.limit = limit
    return replicas


def fetch_from(
    replicas: Replicas, replica: int, partitions: Sequence[int] = (0,), max_wait_ms: int = 0
) -> Any:
    parts = [
        FetchRequestPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in partitions
    ]
    request = FetchRequest(
        replica_id=replica,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequestTopic(topic="t", partitions=parts)],
    )
    return handle(replicas, request)


def sizes(response: Any) -> list[int]:
    """Return the size of each partition's records."""
    return [
        getattr(part.records, "size", 0)
        for topic in response.responses
        for part in topic.partitions
    ]


def test_a_lagging_replica_gets_nothing_while_the_quota_is_exceeded() -> None:
    replicas = leading("0:0")
    assert sizes(fetch_from(replicas, LAGGING)) == [SIZE]  # which exceeds it
    assert sizes(fetch_from(replicas, LAGGING)) == [0]


def test_a_replica_in_sync_gets_what_there_is_and_it_counts() -> None:
    replicas = leading("*")
    assert sizes(fetch_from(replicas, IN_SYNC)) == [SIZE]
    assert sizes(fetch_from(replicas, IN_SYNC)) == [SIZE]
    assert sizes(fetch_from(replicas, LAGGING)) == [0]


def test_what_is_not_listed_is_neither_held_back_nor_counted() -> None:
    replicas = leading("1:0", "0:1", partitions=2)  # 0:1 is for broker 1
    assert sizes(fetch_from(replicas, LAGGING, [0])) == [SIZE]
    assert not replicas.leader_quota.is_exceeded
    assert sizes(fetch_from(replicas, LAGGING, [1, 0])) == [SIZE, SIZE]
    assert sizes(fetch_from(replicas, LAGGING, [1, 0])) == [0, SIZE]


def test_consumers_are_not_held_back_nor_counted() -> None:
    replicas = leading("*")
    replicas.manager.partition(TopicPartition("t", 0)).high_watermark = 1
    assert sizes(fetch_from(replicas, CONSUMER)) == [SIZE]
    assert not replicas.leader_quota.is_exceeded
    replicas.leader_quota.record(100)
    assert sizes(fetch_from(replicas, CONSUMER)) == [SIZE]


def test_within_one_answer_the_quota_counts_at_once() -> None:
    replicas = leading("*", partitions=3, limit=SIZE)
    assert sizes(fetch_from(replicas, LAGGING, [0, 1, 2])) == [SIZE, SIZE, 0]


def test_what_is_held_back_is_waited_for() -> None:
    replicas = leading("*")
    replicas.leader_quota.record(100)
    wait = fetch_from(replicas, LAGGING, max_wait_ms=500)
    assert isinstance(wait, Wait)
    assert wait.try_complete(False) is None
    assert sizes(wait.try_complete(True)) == [0]


def test_when_the_quota_is_kept_again_the_wait_ends_with_records() -> None:
    replicas = leading("*")
    replicas.leader_quota.record(100)
    wait = fetch_from(replicas, LAGGING, max_wait_ms=500)
    replicas.leader_quota.limit = 1000
    assert sizes(wait.try_complete(False)) == [SIZE]


@pytest.mark.parametrize("replica", [LAGGING, IN_SYNC])
def test_without_a_limit_nobody_is_held_back(replica: int) -> None:
    replicas = leading("*", limit=2**63 - 1)
    for _ in range(3):
        assert sizes(fetch_from(replicas, replica)) == [SIZE]
