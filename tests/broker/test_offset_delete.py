"""OffsetDelete through its handler, over a coordinator whose log is in memory."""

from typing import Any

import pytest

from broker.handlers import offset_delete
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import Pending
from offsets.config import OffsetsConfig
from offsets.records import CommittedOffset
from offsets.requests import delete_offsets_request, delete_results
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.coordinator import (
    commit,
    coordinator_of_nothing,
    coordinator_over,
    coordinator_still_loading,
)

KNOWN = {"flights": range(2), "weather": range(1)}
CONTEXT = RequestContext(0, "client", "PLAINTEXT", "127.0.0.1:1", 0)
F0, F1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
UNKNOWN = (TopicPartition("flights", 2), TopicPartition("none", 0))


def delete(coordinator: GroupCoordinator, *partitions: TopicPartition, group: str = "g") -> Any:
    request = delete_offsets_request(group, partitions)
    return offset_delete.handle(coordinator, lambda t: KNOWN.get(t, ()), request, CONTEXT)


@pytest.fixture
def log() -> MemoryPartitionLog:
    return MemoryPartitionLog()


@pytest.fixture
def coordinator(log: MemoryPartitionLog) -> GroupCoordinator:
    """Build a coordinator with a group that has committed for two partitions."""
    made = coordinator_over(log, OffsetsConfig(commit_timeout_ms=1234))
    commit(made, "g", {tuple(tp): CommittedOffset(42) for tp in (F0, F1)})
    return made


def kept(coordinator: GroupCoordinator) -> list[tuple[str, int]]:
    values = coordinator.shard("g").offsets.values_of("g")
    return [(topic, partition) for topic, partition, _ in values]


def test_offsets_named_are_gone_and_partitions_unknown_are_told(
    coordinator: GroupCoordinator,
) -> None:
    response = delete(coordinator, F0, *UNKNOWN, TopicPartition("weather", 0))
    assert response.error_code == ErrorCode.NONE
    assert delete_results(response) == {
        F0: ErrorCode.NONE,
        TopicPartition("weather", 0): ErrorCode.NONE,
        **dict.fromkeys(UNKNOWN, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    }
    assert kept(coordinator) == [tuple(F1)]


@pytest.mark.parametrize(
    ("refusing", "group", "code"),
    [
        (coordinator_of_nothing, "g", ErrorCode.NOT_COORDINATOR),
        (coordinator_still_loading, "g", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (coordinator_of_nothing, "", ErrorCode.INVALID_GROUP_ID),
        (lambda: coordinator_over(MemoryPartitionLog()), "g", ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_request_for_a_group_that_is_not_here_is_refused_as_a_whole(
    refusing: Any, group: str, code: ErrorCode
) -> None:
    response = delete(refusing(), F0, group=group)
    assert (response.error_code, response.topics) == (code, [])


def test_append_that_failed_is_told_and_the_offset_is_kept(
    coordinator: GroupCoordinator, log: MemoryPartitionLog
) -> None:
    log.fail(0, ErrorCode.NOT_ENOUGH_REPLICAS)
    assert delete(coordinator, F0).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert len(kept(coordinator)) == 2


def test_deletion_waits_until_it_is_replicated(
    coordinator: GroupCoordinator, log: MemoryPartitionLog
) -> None:
    log.replicas = 3
    wait = delete(coordinator, F0, *UNKNOWN)
    assert isinstance(wait, Wait)
    (pending,) = wait.keys
    assert isinstance(pending, Pending)
    assert (pending.response, wait.timeout_ms) == (None, 1234)
    assert wait.try_complete(False) is None
    log.replicate(0)
    answer = wait.try_complete(False)
    assert answer.error_code == ErrorCode.NONE
    assert delete_results(answer)[F0] is ErrorCode.NONE


def test_deletion_that_is_not_replicated_in_time_timed_out(
    coordinator: GroupCoordinator, log: MemoryPartitionLog
) -> None:
    log.replicas = 3
    assert delete(coordinator, F0).try_complete(True).error_code == ErrorCode.REQUEST_TIMED_OUT
