"""OffsetCommit through its handler, over a coordinator whose log is in memory."""

from collections.abc import Callable
from typing import Any

import pytest

from broker.handlers import offset_commit
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from groups.runtime.memory_partition_log import MemoryPartitionLog
from groups.runtime.runtime import Pending
from offsets.config import OffsetsConfig
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.broker.zookeeper_twin import NO_ZOOKEEPER
from tests.stage.coordinator import coordinator_of_nothing, coordinator_over

KNOWN = {"flights": range(2), "weather": range(1)}
CONTEXT = RequestContext(2, "client", "PLAINTEXT", "127.0.0.1:1", 1_700_000_000_000)


@pytest.fixture
def log() -> MemoryPartitionLog:
    return MemoryPartitionLog()


@pytest.fixture
def commit(log: MemoryPartitionLog) -> Callable[[OffsetCommitRequest], Any]:
    """The handler over `log`, with room for eight characters of metadata."""
    coordinator = coordinator_over(log, OffsetsConfig(metadata_max_bytes=8))
    return lambda request: offset_commit.handle(
        coordinator, NO_ZOOKEEPER, lambda topic: KNOWN.get(topic, ()), request, CONTEXT
    )


def commit_request(
    *partitions: tuple[str, int, str], generation_id: int = -1
) -> OffsetCommitRequest:
    """Build a request in which each partition has a topic of its own, in order."""
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index, committed_offset=42, committed_metadata=metadata
                    )
                ],
            )
            for topic, index, metadata in partitions
        ],
    )


def errors(response: Any) -> list[tuple[str, int, ErrorCode]]:
    return [
        (topic.name, p.partition_index, ErrorCode.of(p.error_code))
        for topic in response.topics
        for p in topic.partitions
    ]


def test_commit_is_answered_per_partition(commit: Callable[..., Any]) -> None:
    response = commit(commit_request(("flights", 0, ""), ("weather", 0, "note")))
    assert errors(response) == [
        ("flights", 0, ErrorCode.NONE),
        ("weather", 0, ErrorCode.NONE),
    ]


def test_unknown_partition_and_long_metadata_are_refused_and_the_rest_is_kept(
    commit: Callable[..., Any], log: MemoryPartitionLog
) -> None:
    response = commit(
        commit_request(
            ("flights", 0, ""), ("flights", 2, ""), ("none", 0, ""), ("weather", 0, "m" * 9)
        )
    )
    assert errors(response) == [
        ("flights", 0, ErrorCode.NONE),
        ("flights", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("weather", 0, ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ]
    assert log.end_offset(0) == 1


def test_commit_of_nothing_known_asks_no_coordinator() -> None:
    nobody = coordinator_of_nothing()
    request = commit_request(("none", 0, ""))
    response = offset_commit.handle(nobody, NO_ZOOKEEPER, lambda topic: (), request, CONTEXT)
    assert errors(response) == [("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_commit_at_the_wrong_coordinator_is_refused_for_every_known_partition() -> None:
    nobody = coordinator_of_nothing()
    request = commit_request(("flights", 0, ""), ("none", 0, ""))
    response = offset_commit.handle(
        nobody, NO_ZOOKEEPER, lambda t: KNOWN.get(t, ()), request, CONTEXT
    )
    assert errors(response) == [
        ("flights", 0, ErrorCode.NOT_COORDINATOR),
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_generation_of_an_unknown_group_is_refused(commit: Callable[..., Any]) -> None:
    response = commit(commit_request(("flights", 0, ""), generation_id=1))
    assert errors(response) == [("flights", 0, ErrorCode.ILLEGAL_GENERATION)]


@pytest.fixture
def replicated_log() -> MemoryPartitionLog:
    return MemoryPartitionLog(replicas=3)


@pytest.fixture
def wait(replicated_log: MemoryPartitionLog) -> Wait:
    """A commit that waits for followers."""
    coordinator = coordinator_over(replicated_log, OffsetsConfig(commit_timeout_ms=1234))
    outcome = offset_commit.handle(
        coordinator,
        NO_ZOOKEEPER,
        lambda topic: KNOWN[topic],
        commit_request(("flights", 0, "")),
        CONTEXT,
    )
    assert isinstance(outcome, Wait)
    return outcome


def test_commit_that_has_to_be_replicated_waits_for_its_own_response(wait: Wait) -> None:
    (pending,) = wait.keys
    assert isinstance(pending, Pending)
    assert pending.response is None
    assert wait.timeout_ms == 1234
    assert wait.try_complete(False) is None


def test_commit_that_was_replicated_is_answered(
    wait: Wait, replicated_log: MemoryPartitionLog
) -> None:
    replicated_log.replicate(0)
    assert errors(wait.try_complete(False)) == [("flights", 0, ErrorCode.NONE)]


def test_commit_that_is_not_replicated_in_time_timed_out(wait: Wait) -> None:
    assert errors(wait.try_complete(True)) == [("flights", 0, ErrorCode.REQUEST_TIMED_OUT)]
