"""OffsetFetch: what a group has committed; from v2 null topics ask for everything.

Version 0 asks for the offsets in ZooKeeper, which have no metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.coordinators.zookeeper_offsets import FetchedOffsets, ZooKeeperOffsets
from broker.network.authorization import Operation
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, refused_topics
from groups.coordinator.coordinator import GroupCoordinator
from offsets.committed import CommittedOffsets
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

FIRST_VERSION_OF_GROUP_ERROR = 2
"""Before this version an error has no place but at each partition."""


def handle(
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperOffsets,
    request: OffsetFetchRequest,
    context: RequestContext,
) -> Outcome:
    """Respond from what is replicated; -1 where nothing is committed. Raises ApiError.

    Topics that the sender may not describe are refused by name, and left out of everything.
    """
    group_id = request.group_id
    topics = request.topics
    names = (topic.name for topic in topics or ())
    refused = refused_topics(context, Operation.DESCRIBE, names)
    if context.api_version == 0:
        return _fetch_from_zookeeper(zookeeper, request, refused)

    # This fails if another broker coordinates the group, or while this one loads it.
    try:
        offsets = coordinator.offsets(group_id)
    except ApiError as error:
        if context.api_version < FIRST_VERSION_OF_GROUP_ERROR:
            # The error response of these versions has the code at each partition.
            raise
        return OffsetFetchResponse(topics=[], error_code=error.code)

    # Offsets that are in flight do not show: a new leader could lose them.
    if topics is None:
        return OffsetFetchResponse(topics=_all_topics(offsets, group_id, context))
    return OffsetFetchResponse(
        topics=[
            _refused_topic(topic.name, topic.partition_indexes)
            if topic.name in refused
            else _topic(
                topic.name,
                (
                    (partition_id, offsets.fetch(group_id, topic.name, partition_id))
                    for partition_id in topic.partition_indexes
                ),
            )
            for topic in topics
        ]
    )


def _all_topics(
    offsets: CommittedOffsets, group_id: str, context: RequestContext
) -> list[OffsetFetchResponseTopic]:
    committed = offsets.of_group(group_id)
    # Topics that the sender may not know of are left out.
    refused = refused_topics(context, Operation.DESCRIBE, committed)
    return [
        _topic(name, of_topic.items())
        for name, of_topic in committed.items()
        if name not in refused
    ]


def _fetch_from_zookeeper(
    zookeeper: ZooKeeperOffsets, request: OffsetFetchRequest, refused: Collection[str]
) -> Outcome:
    # Refused topics are not read at all.
    allowed = [
        TopicPartition(topic.name, partition_id)
        for topic in request.topics or ()
        for partition_id in topic.partition_indexes
        if topic.name not in refused
    ]

    def render(fetched: FetchedOffsets) -> OffsetFetchResponse:
        return OffsetFetchResponse(
            topics=[
                _refused_topic(topic.name, topic.partition_indexes)
                if topic.name in refused
                else _topic_from_zookeeper(topic.name, topic.partition_indexes, fetched)
                for topic in request.topics or ()
            ]
        )

    return zookeeper.fetch(request.group_id, allowed, render)


def _topic_from_zookeeper(
    name: str, partition_ids: Iterable[int], fetched: FetchedOffsets
) -> OffsetFetchResponseTopic:
    partitions = []
    for partition_id in partition_ids:
        offset, code = fetched[TopicPartition(name, partition_id)]
        partitions.append(
            OffsetFetchResponsePartition(
                partition_index=partition_id, committed_offset=offset, metadata="", error_code=code
            )
        )
    return OffsetFetchResponseTopic(name=name, partitions=partitions)


def _refused_topic(name: str, partition_ids: Iterable[int]) -> OffsetFetchResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=partition_id, committed_offset=-1, metadata="", error_code=code
            )
            for partition_id in partition_ids
        ],
    )


def _topic(
    name: str, offsets: Iterable[tuple[int, CommittedOffset | None]]
) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            _partition(partition_id, committed or _NO_COMMIT) for partition_id, committed in offsets
        ],
    )


def _partition(partition_id: int, committed: CommittedOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition_id,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=ErrorCode.NONE,
    )
