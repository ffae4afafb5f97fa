"""OffsetFetch: what a group has committed; from v2 null topics ask for everything.

Version 0 asks for what is in ZooKeeper, where there are no metadata.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.coordinators.zookeeper_offsets import Fetched, ZooKeeperOffsets
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from offsets.records import CommittedOffset
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from protocol.topic_partition import TopicPartition

_NO_COMMIT = CommittedOffset(offset=-1)


def handle(
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperOffsets,
    request: OffsetFetchRequest,
    context: RequestContext,
) -> OffsetFetchResponse | Wait:
    """Answer from what is replicated; -1 where nothing is committed. Raises ApiError."""
    group = request.group_id
    if context.api_version == 0:
        asked = _partitions_of(request)
        return zookeeper.fetch(group, asked, lambda found: _from_zookeeper(request, found))
    try:
        offsets = coordinator.offsets(group)
    except ApiError as error:
        if context.api_version < 2:  # where an error has no place but at each partition
            raise
        return OffsetFetchResponse(topics=[], error_code=error.code)
    if request.topics is None:
        topics = [_topic(name, kept.items()) for name, kept in offsets.of_group(group).items()]
    else:
        topics = [
            _topic(t.name, ((p, offsets.fetch(group, t.name, p)) for p in t.partition_indexes))
            for t in request.topics
        ]
    return OffsetFetchResponse(topics=topics, error_code=ErrorCode.NONE)


def _partitions_of(request: OffsetFetchRequest) -> list[TopicPartition]:
    return [TopicPartition(t.name, p) for t in request.topics or () for p in t.partition_indexes]


def _from_zookeeper(request: OffsetFetchRequest, found: Fetched) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=offset, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                    for offset, code in (found[TopicPartition(topic.name, index)],)
                ],
            )
            for topic in request.topics or ()
        ]
    )


def _topic(
    name: str, offsets: Iterable[tuple[int, CommittedOffset | None]]
) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name, partitions=[_partition(index, kept or _NO_COMMIT) for index, kept in offsets]
    )


def _partition(index: int, committed: CommittedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )
