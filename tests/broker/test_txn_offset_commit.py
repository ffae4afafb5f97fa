"""TxnOffsetCommit through its handler, over a coordinator whose log is in memory."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers import offset_fetch, txn_offset_commit
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.config import OffsetsConfig
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from protocol.records.batch import read_header
from tests.broker.replication.replicas import context
from tests.broker.transactions import P, commit_codes, commit_request
from tests.broker.zookeeper_twin import NO_ZOOKEEPER
from tests.stage.coordinator import (
    coordinator_of_nothing,
    coordinator_over,
    coordinator_still_loading,
)

KNOWN = {"flights": range(2), "weather": range(1)}


def commit(coordinator: GroupCoordinator, request: TxnOffsetCommitRequest, version: int = 3) -> Any:
    return txn_offset_commit.handle(
        coordinator, lambda topic: KNOWN.get(topic, ()), request, context(version)
    )


def fetch(coordinator: GroupCoordinator, *, stable: bool) -> list[tuple[int, int, ErrorCode]]:
    """Return partition, offset and error of what group g has of flights."""
    request = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequestTopic(name="flights", partition_indexes=[0, 1])],
        require_stable=stable,
    )
    response: Any = offset_fetch.handle(coordinator, NO_ZOOKEEPER, request, context(7))
    return [
        (p.partition_index, p.committed_offset, ErrorCode.of(p.error_code))
        for p in response.topics[0].partitions
    ]


def test_a_commit_is_written_under_the_producers_id_and_waits_for_the_end() -> None:
    log = MemoryPartitionLog()
    coordinator = coordinator_over(log)
    assert commit_codes(commit(coordinator, commit_request(("flights", 0, 42)))) == [ErrorCode.NONE]
    header = read_header(log.read(0, 0, 1000))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (P, 0, 0)
    assert header.is_transactional
    nothing = (1, -1, ErrorCode.NONE)
    assert fetch(coordinator, stable=False) == [(0, -1, ErrorCode.NONE), nothing]
    assert fetch(coordinator, stable=True) == [(0, -1, ErrorCode.UNSTABLE_OFFSET_COMMIT), nothing]

    coordinator.end_transaction(0, P, 0, is_committed=True, coordinator_epoch=0)
    assert fetch(coordinator, stable=True) == [(0, 42, ErrorCode.NONE), nothing]


def test_partitions_that_cannot_be_committed_are_refused_and_the_rest_is_kept() -> None:
    coordinator = coordinator_over(MemoryPartitionLog(), OffsetsConfig(metadata_max_bytes=8))
    request = commit_request(("flights", 0, 1), ("none", 0, 1), ("weather", 3, 1))
    assert commit_codes(commit(coordinator, request)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_metadata_that_is_too_large_never_makes_an_offset_unstable() -> None:
    """In Kafka it did, for good (KAFKA-16371)."""
    log = MemoryPartitionLog()
    coordinator = coordinator_over(log, OffsetsConfig(metadata_max_bytes=8))
    request = commit_request(("flights", 0, 1), metadata="m" * 9)
    assert commit_codes(commit(coordinator, request)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert log.end_offset(0) == 0
    assert fetch(coordinator, stable=True)[0] == (0, -1, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (0, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (3, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    ],
)
def test_old_clients_do_not_hear_of_loading(version: int, code: ErrorCode) -> None:
    request = commit_request(("flights", 0, 1))
    assert commit_codes(commit(coordinator_still_loading(), request, version)) == [code]


@pytest.mark.parametrize(
    ("group_id", "code"), [("g", ErrorCode.NOT_COORDINATOR), ("", ErrorCode.INVALID_GROUP_ID)]
)
def test_a_commit_at_the_wrong_place_is_refused(group_id: str, code: ErrorCode) -> None:
    request = commit_request(("flights", 0, 1), ("none", 0, 1), group_id=group_id)
    assert commit_codes(commit(coordinator_of_nothing(), request)) == [
        code,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_member_that_is_none_is_refused() -> None:
    request = commit_request(("flights", 0, 1), generation_id=1, member_id="m")
    codes = commit_codes(commit(coordinator_over(MemoryPartitionLog()), request))
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID]
