"""Metadata: the cluster as this broker's cache has it; missing topics may be created."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from broker.dispatch import RequestContext
from broker.metadata_cache import INTERNAL_TOPICS, MetadataCache
from protocol.encoding import Encoded, encode
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.update_metadata import UpdateMetadataRequestPartitionState

AutoCreate = Callable[[str], None]
"""Begin to create a topic with the broker's defaults; raises ApiError when it cannot be."""


@attrs.define(eq=False)
class AllTopics:
    """The answers to those who ask for all topics, encoded, until the metadata changes: one for
    each version and listener. `encodings` counts how often one was made."""

    encodings: int = 0
    _answers: dict[tuple[int, str], Encoded] = attrs.field(factory=dict)
    _updates: int = -1

    def answer(
        self, cache: MetadataCache, context: RequestContext, make: Callable[[], MetadataResponse]
    ) -> Encoded:
        """The one that is kept, else the one that is made now."""
        if self._updates != cache.updates:
            self._answers.clear()
            self._updates = cache.updates
        asked_as = context.api_version, context.listener
        kept = self._answers.get(asked_as)
        if kept is None:
            kept = Encoded(MetadataResponse, encode(make(), context.api_version))
            self._answers[asked_as] = kept
            self.encodings += 1
        return kept


def handle(
    cache: MetadataCache,
    all_topics: AllTopics,
    cluster_id: str,
    auto_create: AutoCreate | None,
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponse | Encoded:
    """Answer from the cache. `auto_create` is None where auto.create.topics.enable is off."""
    if request.topics is None or (context.api_version == 0 and not request.topics):
        return all_topics.answer(
            cache, context, lambda: _answer(cache, cluster_id, cache.topics(), None, context)
        )
    names = [topic.name for topic in request.topics]
    create = auto_create if request.allow_auto_topic_creation else None
    return _answer(cache, cluster_id, names, create, context)


def _answer(
    cache: MetadataCache,
    cluster_id: str,
    names: Iterable[str],
    create: AutoCreate | None,
    context: RequestContext,
) -> MetadataResponse:
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        topics=[_topic(cache, name, create, context) for name in dict.fromkeys(names)],
    )


def _brokers(cache: MetadataCache, listener: str) -> list[MetadataResponseBroker]:
    return [
        MetadataResponseBroker(node_id=broker.id, host=found[0], port=found[1], rack=broker.rack)
        for broker in cache.brokers.values()
        if (found := broker.endpoints.get(listener))
    ]


def _topic(
    cache: MetadataCache, name: str, create: AutoCreate | None, context: RequestContext
) -> MetadataResponseTopic:
    if not cache.has_topic(name):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not cache.brokers:
            # Just started, and told of nothing yet: a client that hears that a topic is not there
            # may give up what it was to send.
            code = ErrorCode.LEADER_NOT_AVAILABLE
        elif create is not None:
            try:
                create(name)
                code = ErrorCode.LEADER_NOT_AVAILABLE
            except ApiError as error:
                code = error.code
        return MetadataResponseTopic(
            error_code=code, name=name, is_internal=name in INTERNAL_TOPICS, partitions=[]
        )
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(cache, state, context) for state in cache.partitions(name)],
    )


def _partition(
    cache: MetadataCache, state: UpdateMetadataRequestPartitionState, context: RequestContext
) -> MetadataResponsePartition:
    code, leader = ErrorCode.NONE, state.leader
    replicas, isr = tuple(state.replicas), tuple(state.isr)
    if context.api_version == 0:  # its clients expect to know each broker that is named
        replicas, isr = _live(cache, replicas), _live(cache, isr)
        if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    if cache.endpoint(leader, context.listener) is None:
        alive = leader in cache.brokers
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if alive and context.api_version >= 6:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader, isr = -1, isr if alive else ()
    return MetadataResponsePartition(
        error_code=code,
        partition_index=state.partition_index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=tuple(state.offline_replicas),
    )


def _live(cache: MetadataCache, ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(i for i in ids if i in cache.brokers)
