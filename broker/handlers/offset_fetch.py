"""OffsetFetch: what groups have committed; from v2 null topics ask for everything.

Version 0 asks for the offsets in ZooKeeper, which have no metadata. From v8 on a request names
several groups, and each has an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from broker.coordinators.zookeeper_offsets import FetchedOffsets, ZooKeeperOffsets
from broker.network.authorization import group
from broker.network.dispatch import Outcome
from broker.network.request_context import (
    RequestContext,
    authorize,
    refused_topics,
    require_authorized,
)
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.shard import GroupShard
from offsets.records import CommittedOffset, OffsetKey
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    refused_topic,
)
from protocol.topic_partition import TopicPartition

_NO_COMMIT = CommittedOffset(offset=-1)

FIRST_VERSION_OF_GROUP_ERROR = 2
"""Before this version an error has no place but at each partition."""
FIRST_VERSION_OF_SEVERAL_GROUPS = 8

Topics = Sequence[OffsetFetchRequestTopic] | None
"""The topics that a request asks for; None for all."""


def handle(
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperOffsets,
    request: OffsetFetchRequest,
    context: RequestContext,
) -> Outcome:
    """Respond from what is replicated; -1 where nothing is committed. Raises ApiError.

    Topics that the sender may not describe are refused by name, and left out of everything.
    """
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_GROUPS:
        stable = request.require_stable
        return OffsetFetchResponse(
            groups=[_fetch_group(coordinator, asked, stable, context) for asked in request.groups]
        )

    require_authorized(context, Operation.DESCRIBE, group(request.group_id))
    topics = request.topics
    if context.api_version == 0:
        names = (topic.name for topic in topics or ())
        refused = refused_topics(context, Operation.DESCRIBE, names)
        return _fetch_from_zookeeper(zookeeper, request, refused)

    try:
        fetched = _fetch(coordinator, request.group_id, topics, request.require_stable, context)
    except ApiError as error:
        if context.api_version < FIRST_VERSION_OF_GROUP_ERROR:
            # The error response of these versions has the code at each partition.
            raise
        return OffsetFetchResponse(topics=[], error_code=error.code)
    return OffsetFetchResponse(topics=fetched)


def _fetch_group(
    coordinator: GroupCoordinator,
    asked: OffsetFetchRequestGroup,
    require_stable: bool,
    context: RequestContext,
) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    if not authorize(context, Operation.DESCRIBE, group(group_id)):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=code)
    try:
        fetched = _fetch(coordinator, group_id, asked.topics, require_stable, context)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group_id, topics=[], error_code=error.code)
    return OffsetFetchResponseGroup(group_id=group_id, topics=fetched)


def _fetch(
    coordinator: GroupCoordinator,
    group_id: str,
    topics: Topics,
    require_stable: bool,
    context: RequestContext,
) -> list[OffsetFetchResponseTopic]:
    """Return the offsets of one group.

    Raises ApiError if another broker coordinates the group, or while this one loads it.
    """
    shard = coordinator.shard(group_id)
    render = _renderer(shard, group_id, require_stable)

    # Offsets that are in flight do not show: a new leader could lose them.
    if topics is None:
        committed = shard.offsets.of_group(group_id)
        # Topics that the sender may not know of are left out.
        refused = refused_topics(context, Operation.DESCRIBE, committed, quietly=True)
        return [
            render(name, of_topic.items())
            for name, of_topic in committed.items()
            if name not in refused
        ]

    refused = refused_topics(context, Operation.DESCRIBE, (topic.name for topic in topics))
    fetch = shard.offsets.fetch
    return [
        refused_topic(topic.name, topic.partition_indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if topic.name in refused
        else render(
            topic.name,
            (
                (partition_id, fetch(group_id, topic.name, partition_id))
                for partition_id in topic.partition_indexes
            ),
        )
        for topic in topics
    ]


TopicRenderer = Callable[
    [str, Iterable[tuple[int, CommittedOffset | None]]], OffsetFetchResponseTopic
]
"""Makes the response for a topic of the offsets of its partitions."""


def _renderer(shard: GroupShard, group_id: str, require_stable: bool) -> TopicRenderer:
    """Return what renders a topic; with `require_stable` offsets that are about to change fail."""

    def render(
        name: str, offsets: Iterable[tuple[int, CommittedOffset | None]]
    ) -> OffsetFetchResponseTopic:
        partitions = []
        for partition_id, committed in offsets:
            # Another offset may be committed already, or be part of an open transaction (KIP-447).
            if require_stable and shard.is_unstable(OffsetKey(group_id, name, partition_id)):
                partitions.append(
                    _partition(partition_id, _NO_COMMIT, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                )
            else:
                partitions.append(_partition(partition_id, committed or _NO_COMMIT))
        return OffsetFetchResponseTopic(name=name, partitions=partitions)

    return render


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
                refused_topic(
                    topic.name, topic.partition_indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
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


def _partition(
    partition_id: int, committed: CommittedOffset, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition_id,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )
