"""OffsetFetch through its handler."""

from collections.abc import Sequence

import pytest

from broker.handlers import offset_fetch
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.runtime.memory_partition_log import MemoryPartitionLog
from offsets.records import CommittedOffset
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    error_response,
)
from tests.broker.zookeeper_twin import NO_ZOOKEEPER
from tests.stage.coordinator import commit, coordinator_over, coordinator_still_loading

CONTEXT = RequestContext(5, "client", "PLAINTEXT", "127.0.0.1:1", 0)
Row = tuple[str, int, int, int, str | None, int]
"""Topic, partition, offset, leader epoch, metadata, error."""


def coordinator() -> GroupCoordinator:
    made = coordinator_over(MemoryPartitionLog())
    offsets = {("t", 0): CommittedOffset(42, 3, "note"), ("u", 1): CommittedOffset(7)}
    commit(made, "g", offsets)
    return made


def fetch(group: str, topics: dict[str, Sequence[int]] | None) -> list[Row]:
    asked = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ]
    )
    request = OffsetFetchRequest(group_id=group, topics=asked)
    response = offset_fetch.handle(coordinator(), NO_ZOOKEEPER, request, CONTEXT)
    assert response.error_code == ErrorCode.NONE
    return [
        (
            topic.name,
            p.partition_index,
            p.committed_offset,
            p.committed_leader_epoch,
            p.metadata,
            p.error_code,
        )
        for topic in response.topics
        for p in topic.partitions
    ]


def test_committed_offset_comes_back_with_metadata_and_leader_epoch() -> None:
    assert fetch("g", {"t": [0]}) == [("t", 0, 42, 3, "note", 0)]


def test_partition_without_a_commit_has_offset_minus_one_and_no_error() -> None:
    assert fetch("g", {"t": [1], "none": [0]}) == [
        ("t", 1, -1, -1, "", 0),
        ("none", 0, -1, -1, "", 0),
    ]


def test_unknown_group_has_no_offsets() -> None:
    assert fetch("nobody", {"t": [0]}) == [("t", 0, -1, -1, "", 0)]
    assert fetch("nobody", None) == []


def test_null_topics_ask_for_everything() -> None:
    assert fetch("g", None) == [("t", 0, 42, 3, "note", 0), ("u", 1, 7, -1, "", 0)]


def test_no_topics_ask_for_nothing() -> None:
    assert fetch("g", {}) == []


def test_group_that_is_being_loaded_is_refused_at_the_top() -> None:
    request = OffsetFetchRequest(group_id="g", topics=None)
    response = offset_fetch.handle(coordinator_still_loading(), NO_ZOOKEEPER, request, CONTEXT)
    assert response == OffsetFetchResponse(
        topics=[], error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )


def test_before_version_2_each_partition_of_a_group_that_is_being_loaded_is_refused() -> None:
    request = OffsetFetchRequest(
        group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    )
    context = CONTEXT._replace(api_version=1)

    with pytest.raises(ApiError) as refused:
        offset_fetch.handle(coordinator_still_loading(), NO_ZOOKEEPER, request, context)

    response = error_response(request, refused.value.code)
    (topic,) = response.topics
    assert [p.error_code for p in topic.partitions] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
