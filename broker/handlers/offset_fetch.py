"""OffsetFetch: what groups have committed; from v2 null topics ask for everything.

Version 0 asks for the offsets in ZooKeeper, which have no metadata. From v8 on a request names
several groups, and each has an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import Any

import attrs

from broker.coordinators.zookeeper_offsets import FetchedOffsets, ZooKeeperOffsets
from broker.network.authorization import group
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.long_answers import AnswerBytes, LongAnswer
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
    error_response,
    refused_topic,
)
from protocol.topic_partition import TopicPartition

_NO_COMMIT = CommittedOffset(offset=-1)

FIRST_VERSION_OF_GROUP_ERROR = 2
"""Before this version an error has no place but at each partition."""
FIRST_VERSION_OF_SEVERAL_GROUPS = 8

OFFSETS_A_TURN = 1_000
"""Offsets that one turn answers with, of a group that is asked for all: some 5 ms."""
TIMEOUT_MS = 60_000
"""Time for all turns of a request."""

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
    # Nothing in the request says how much a group has committed.
    if _asks_for_much(coordinator, request, context):
        everything = _Everything(coordinator, request, context)
        late = partial(_late, request)
        return zookeeper.deferred.respond_in_turns(
            everything.go_on, TIMEOUT_MS, late, owner_of(context)
        )

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
        committed: dict[str, dict[int, CommittedOffset | None]] = {
            name: {**of_topic} for name, of_topic in shard.offsets.of_group(group_id).items()
        }
        if require_stable:
            # The first ones of their partitions are about to come (fault strangers-43).
            for key in _first_ones(shard, group_id):
                committed.setdefault(key.topic, {})[key.partition] = None
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


def _first_ones(shard: GroupShard, group_id: str) -> Iterator[OffsetKey]:
    """Go through the offsets in open transactions that are the first of their partitions.

    Kafka lists what is committed alone, and its tools take the others for absent.
    """
    # The set is a copy: transactions may end between two of them.
    return (key for key in shard.staged_offsets(group_id) if shard.offsets.value(key) is None)


# ---- all offsets of groups that have many


def _asks_for_much(
    coordinator: GroupCoordinator, request: OffsetFetchRequest, context: RequestContext
) -> bool:
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_GROUPS:
        names = [asked.group_id for asked in request.groups if asked.topics is None]
    else:
        is_for_all = request.topics is None and context.api_version > 0
        names = [request.group_id] if is_for_all else []

    count = 0
    for name in names:
        # One that is another coordinator's hides nothing of the others (fault strangers-8).
        with suppress(ApiError):
            shard = coordinator.shard(name)
            count += shard.offsets.count_of(name)
            # Small requests of transactions add to them.
            count += len(shard.staged_offsets(name)) if request.require_stable else 0
    # The others have their turns in between (fault groups-8).
    return count > OFFSETS_A_TURN


@attrs.define(eq=False)
class _Everything:
    """The response to a request for all offsets of a group, or of several, a part in each turn.

    Each offset is one that was replicated when its turn came.
    """

    coordinator: GroupCoordinator
    request: OffsetFetchRequest
    context: RequestContext
    groups: list[OffsetFetchResponseGroup] = attrs.field(factory=list)
    _size: AnswerBytes = attrs.field(factory=AnswerBytes)
    """Of all groups, of which one may be named very often."""
    _left: list[OffsetFetchRequestGroup] = attrs.field(init=False)
    _keys: Iterator[OffsetKey] = attrs.field(init=False)
    _shard: GroupShard | None = None
    _topics: LongAnswer = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        request = self.request
        is_one = self.context.api_version < FIRST_VERSION_OF_SEVERAL_GROUPS
        only = OffsetFetchRequestGroup(group_id=request.group_id, topics=request.topics)
        self._left = [only] if is_one else [*request.groups]
        if is_one:
            require_authorized(self.context, Operation.DESCRIBE, group(request.group_id))

    def go_on(self) -> Outcome | None:
        """Take some of the offsets; return the response when there are no more."""
        asked = self._left[0]
        answer = self._answer(asked)
        if answer is not None:
            self.groups.append(answer)
            del self._left[0]
            self._shard = None
        if self._left:
            return None

        if self.context.api_version >= FIRST_VERSION_OF_SEVERAL_GROUPS:
            return OffsetFetchResponse(groups=self.groups)
        (only,) = self.groups
        return OffsetFetchResponse(topics=only.topics, error_code=only.error_code)

    def _answer(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup | None:
        stable = self.request.require_stable
        is_refused = not authorize(self.context, Operation.DESCRIBE, group(asked.group_id))
        if asked.topics is not None or is_refused:
            return _fetch_group(self.coordinator, asked, stable, self.context)
        try:
            is_whole = self._take_part(asked.group_id, stable)
        except ApiError as error:
            return OffsetFetchResponseGroup(
                group_id=asked.group_id, topics=[], error_code=error.code
            )
        if not is_whole:
            return None
        topics: Any = self._topics.array()
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)

    def _take_part(self, group_id: str, stable: bool) -> bool:
        """Encode some offsets; return whether there are no more. Raises ApiError."""
        shard = self.coordinator.shard(group_id)
        if self._shard is None:
            self._shard = shard
            first_ones = _first_ones(shard, group_id) if stable else ()
            self._keys = chain(shard.offsets.keys_of(group_id), first_ones)
            version = self.context.api_version
            self._topics = LongAnswer(OffsetFetchResponse, version, self._size)
        # It was loaded again: what came before is of another coordinator.
        if shard is not self._shard:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"group {group_id}")

        part = list(islice(self._keys, OFFSETS_A_TURN))
        by_topic: dict[str, list[OffsetKey]] = {}
        for key in part:
            by_topic.setdefault(key.topic, []).append(key)
        refused = refused_topics(self.context, Operation.DESCRIBE, by_topic, quietly=True)
        render = _renderer(shard, group_id, stable)
        for name, keys in by_topic.items():
            if name not in refused:
                offsets = ((key.partition, shard.offsets.fetch(*key)) for key in keys)
                # What is encoded already is small, and need not be encoded at the end.
                self._topics.add([render(name, offsets)])
        return not part


def _late(request: OffsetFetchRequest) -> Outcome:
    return error_response(request, ErrorCode.REQUEST_TIMED_OUT)


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
