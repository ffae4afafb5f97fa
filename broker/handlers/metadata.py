"""Metadata: the cluster as this broker's cache has it; missing topics may be created."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import CLUSTER, Operation, topic
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, authorize, refused_topics, take_mutations
from protocol.encoding import Encoded, encode, encode_element
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.metadata import (
    NO_TOPIC_ID,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.update_metadata import UpdateMetadataRequestPartitionState

AutoCreate = Callable[[str], int]
"""Begins to create a topic, and returns the number of its partitions; 0 if it is begun already."""
"""Begins to create a topic with the broker's defaults. Raises ApiError when it cannot be."""


PARTITIONS_A_TURN = 2000
"""Partitions encoded in one turn of the loop for a request for all topics: some 10 ms."""
TURNS_TIMEOUT_MS = 30_000
"""A request for all topics waits no longer for further turns of the loop."""

VersionAndListener = tuple[int, str]
"""What a response depends on, beside the cache."""


@attrs.define(eq=False)
class AllTopics:
    """The responses to requests for all topics, encoded: one for each version and listener.

    They are kept until the metadata changes, and each topic in them until it changes itself.
    `encodings` counts how often a topic was encoded.
    """

    encodings: int = 0
    _responses: dict[VersionAndListener, Encoded] = attrs.field(factory=dict)
    _topics: dict[VersionAndListener, dict[str, tuple[int, Encoded]]] = attrs.field(factory=dict)
    _updates: int = -1

    def response(
        self, cache: MetadataCache, cluster_id: str, context: RequestContext, partitions: float
    ) -> MetadataResponse | Encoded | None:
        """Return the response, or None after encoding about `partitions` partitions of it."""
        if self._updates != cache.updates:
            self._responses.clear()
            self._updates = cache.updates

        # With an authorizer each sender may see other topics. Then only the topics are shared.
        key = context.api_version, context.listener
        encoded = self._responses.get(key)
        if encoded is not None and context.allows is None:
            return encoded

        topics = self._encode(cache, context, partitions)
        if topics is None:
            return None
        if context.allows is not None:
            return _response(cache, cluster_id, _describable(cache, topics, context), context)

        whole = _response(cache, cluster_id, topics, context)
        encoded = Encoded(MetadataResponse, encode(whole, context.api_version))
        self._responses[key] = encoded
        return encoded

    def _encode(
        self, cache: MetadataCache, context: RequestContext, partitions: float
    ) -> list[Encoded] | None:
        """Return all topics, in the cache's order; None if some are still to be encoded."""
        kept = self._topics.setdefault((context.api_version, context.listener), {})
        if len(kept) > len(cache.changed_in):  # some are deleted
            for name in kept.keys() - cache.changed_in.keys():
                del kept[name]

        # A topic is encoded again if it changed since.
        topics = []
        for name in cache.topics():
            encoded_in, encoded = kept.get(name, (-1, NOTHING))
            if encoded_in < cache.changed_in[name]:
                if partitions <= 0:
                    return None
                partitions -= cache.partition_count(name)
                entry = _existing_topic(cache, name, context)
                encoded = encode_element(entry, MetadataResponse, context.api_version)
                kept[name] = cache.updates, encoded
                self.encodings += 1
            topics.append(encoded)
        return topics


NOTHING = Encoded(MetadataResponseTopic, b"")


def _describable(
    cache: MetadataCache, topics: Sequence[Encoded], context: RequestContext
) -> list[Encoded]:
    """Leave out the topics that the sender may not know of."""
    names = list(cache.topics())
    refused = refused_topics(context, Operation.DESCRIBE, names)
    return [entry for name, entry in zip(names, topics, strict=True) if name not in refused]


def handle(
    cache: MetadataCache,
    all_topics: AllTopics,
    cluster_id: str,
    auto_create: AutoCreate | None,
    deferred: Deferred,
    request: MetadataRequest,
    context: RequestContext,
) -> Outcome:
    """Respond from the cache. `auto_create` is None where auto.create.topics.enable is off."""
    # Named topics. Version 0 has no null: its empty list asks for all.
    if request.topics is not None and (context.api_version > 0 or request.topics):
        names = dict.fromkeys(_name(topic_request) for topic_request in request.topics)
        refused = refused_topics(context, Operation.DESCRIBE, names)
        create = auto_create if request.allow_auto_topic_creation else None
        topics = [_topic(cache, name, refused, create, context) for name in names]
        return _response(cache, cluster_id, topics, context)

    # All topics: a large cluster's take several turns of the loop.
    def respond_if_encoded() -> Outcome | None:
        return all_topics.response(cache, cluster_id, context, PARTITIONS_A_TURN)

    def respond_late() -> Outcome:
        response = all_topics.response(cache, cluster_id, context, float("inf"))
        assert response is not None
        return response

    return deferred.respond_in_turns(respond_if_encoded, TURNS_TIMEOUT_MS, respond_late)


def _name(topic_request: MetadataRequestTopic) -> str:
    """Return the name of a topic, which v10 and v11 need though they have ids too (KIP-516)."""
    if topic_request.name is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topic name can not be null")
    if topic_request.topic_id != NO_TOPIC_ID:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Topic IDs are not supported in requests")
    return topic_request.name


def _response(
    cache: MetadataCache,
    cluster_id: str,
    topics: Sequence[Any],  # MetadataResponseTopic, or encoded ones
    context: RequestContext,
) -> MetadataResponse:
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
    )


def _brokers(cache: MetadataCache, listener: str) -> list[MetadataResponseBroker]:
    # A broker without an address on the client's listener is left out.
    return [
        MetadataResponseBroker(
            node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
        )
        for broker in cache.brokers.values()
        if (endpoint := broker.endpoints.get(listener))
    ]


def _topic(
    cache: MetadataCache,
    name: str,
    refused: Collection[str],
    create: AutoCreate | None,
    context: RequestContext,
) -> MetadataResponseTopic:
    """Return a topic by its name. A refused one looks the same whether or not it exists."""
    if name in refused:
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=name,
            is_internal=False,
            partitions=[],
        )
    if cache.has_topic(name):
        return _existing_topic(cache, name, context)

    # A missing topic has an error, also while it is being created.
    return MetadataResponseTopic(
        error_code=_create_missing(cache, name, create, context),
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )


def _create_missing(
    cache: MetadataCache, name: str, create: AutoCreate | None, context: RequestContext
) -> ErrorCode:
    """Begin to create a topic, where that is allowed; return the error for now."""
    if not cache.brokers:
        # This broker has just started and has no metadata yet. A client that is told that a topic
        # does not exist may give up what it was to send.
        return ErrorCode.LEADER_NOT_AVAILABLE
    if create is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not _may_create(name, context):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    # The client asks again until the topic has leaders.
    try:
        take_mutations(context, create(name), strict_from=None)
    except ApiError as error:
        return error.code
    return ErrorCode.LEADER_NOT_AVAILABLE


def _may_create(name: str, context: RequestContext) -> bool:
    """Return whether the sender may create the topic: CREATE of the cluster allows all."""
    return authorize(context, Operation.CREATE, CLUSTER) or authorize(
        context, Operation.CREATE, topic(name)
    )


def _existing_topic(
    cache: MetadataCache, name: str, context: RequestContext
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(cache, state, context) for state in cache.partitions(name)],
    )


def _partition(
    cache: MetadataCache, state: UpdateMetadataRequestPartitionState, context: RequestContext
) -> MetadataResponsePartition:
    code = ErrorCode.NONE
    leader = state.leader
    replicas = tuple(state.replicas)
    isr = tuple(state.isr)

    # Clients of version 0 expect to know each broker that is named.
    if context.api_version == 0:
        replicas = _live(cache, replicas)
        isr = _live(cache, isr)
        if len(replicas) < len(state.replicas) or len(isr) < len(state.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE

    # A leader that cannot be reached on this listener is none.
    if cache.endpoint(leader, context.listener) is None:
        is_alive = leader in cache.brokers
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if is_alive and context.api_version >= 6:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = -1
        if not is_alive:
            isr = ()

    return MetadataResponsePartition(
        error_code=code,
        partition_index=state.partition_index,
        leader_id=leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=tuple(state.offline_replicas),
    )


def _live(cache: MetadataCache, broker_ids: Iterable[int]) -> tuple[int, ...]:
    return tuple(broker_id for broker_id in broker_ids if broker_id in cache.brokers)
