"""Metadata: the cluster as this broker's cache has it; missing topics may be created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
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


PARTITIONS_A_TURN = 2000
"""Partitions that are encoded in one turn of the loop, for who asks for all topics: some 10 ms."""
PATIENCE_MS = 30_000
"""Who asks for all topics waits no longer for other turns of the loop."""

AskedAs = tuple[int, str]
"""The version in which something was asked, and the listener."""


@attrs.define(eq=False)
class AllTopics:
    """The answers to those who ask for all topics, encoded: one for each version and listener.

    They are kept until the metadata changes, and topics until they change themselves. `encodings`
    counts how often one was encoded.
    """

    encodings: int = 0
    _answers: dict[AskedAs, Encoded] = attrs.field(factory=dict)
    _topics: dict[AskedAs, dict[str, tuple[int, Encoded]]] = attrs.field(factory=dict)
    _updates: int = -1

    def answer(
        self, cache: MetadataCache, cluster_id: str, context: RequestContext, partitions: float
    ) -> Encoded | None:
        """The answer; None when more than about so many partitions were still to be encoded. As
        many have been then."""
        if self._updates != cache.updates:
            self._answers.clear()
            self._updates = cache.updates

        asked_as = context.api_version, context.listener
        if asked_as not in self._answers:
            topics = self._encode(cache, context, partitions)
            if topics is None:
                return None
            whole = _answer(cache, cluster_id, topics, context)
            self._answers[asked_as] = Encoded(MetadataResponse, encode(whole, context.api_version))
        return self._answers[asked_as]

    def _encode(
        self, cache: MetadataCache, context: RequestContext, partitions: float
    ) -> list[Encoded] | None:
        """All topics, in the cache's order; None when they are not all encoded yet."""
        kept = self._topics.setdefault((context.api_version, context.listener), {})
        if len(kept) > len(cache.changed_in):  # some are gone
            for name in kept.keys() - cache.changed_in.keys():
                del kept[name]

        topics = []
        for name in cache.topics():
            made_in, encoded = kept.get(name, (-1, NOTHING))
            if made_in < cache.changed_in[name]:
                if partitions <= 0:
                    return None
                partitions -= cache.partition_count(name)
                topic = _topic(cache, name, None, context)
                encoded = Encoded(MetadataResponseTopic, encode(topic, context.api_version))
                kept[name] = cache.updates, encoded
                self.encodings += 1
            topics.append(encoded)
        return topics


NOTHING = Encoded(MetadataResponseTopic, b"")


def handle(
    cache: MetadataCache,
    all_topics: AllTopics,
    cluster_id: str,
    auto_create: AutoCreate | None,
    deferred: Deferred,
    request: MetadataRequest,
    context: RequestContext,
) -> Outcome:
    """Answer from the cache. `auto_create` is None where auto.create.topics.enable is off."""
    if request.topics is not None and (context.api_version > 0 or request.topics):
        names = dict.fromkeys(topic.name for topic in request.topics)
        create = auto_create if request.allow_auto_topic_creation else None
        topics = [_topic(cache, name, create, context) for name in names]
        return _answer(cache, cluster_id, topics, context)

    def respond_if_encoded() -> Outcome | None:
        return all_topics.answer(cache, cluster_id, context, PARTITIONS_A_TURN)

    def respond_late() -> Outcome:
        encoded = all_topics.answer(cache, cluster_id, context, float("inf"))
        assert encoded is not None
        return encoded

    return deferred.respond_in_turns(respond_if_encoded, PATIENCE_MS, respond_late)


def _answer(
    cache: MetadataCache,
    cluster_id: str,
    topics: Sequence[Any],  # some of them Encoded
    context: RequestContext,
) -> MetadataResponse:
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
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
