"""OffsetFetch: what a group has committed; from v2 null topics ask for everything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.dispatch import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from offsets.records import CommittedOffset
from protocol.errors import ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

_NO_COMMIT = CommittedOffset(offset=-1)
_NO_TOPIC: Mapping[int, CommittedOffset] = {}


def handle(
    coordinator: GroupCoordinator, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse:
    """Answer from what is replicated; -1 where nothing is committed. Raises ApiError."""
    committed = coordinator.committed_offsets(request.group_id)
    if request.topics is None:
        topics = [_topic(name, kept, kept) for name, kept in committed.items()]
    else:
        topics = [
            _topic(topic.name, topic.partition_indexes, committed.get(topic.name, _NO_TOPIC))
            for topic in request.topics
        ]
    return OffsetFetchResponse(topics=topics, error_code=ErrorCode.NONE)


def _topic(
    name: str, partitions: Iterable[int], kept: Mapping[int, CommittedOffset]
) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[_partition(index, kept.get(index, _NO_COMMIT)) for index in partitions],
    )


def _partition(index: int, committed: CommittedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )
