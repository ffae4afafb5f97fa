"""Metadata: the cluster as this broker's cache has it; missing topics may be created."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import CLUSTER, Permissions, operations_mask, topic
from broker.network.deferred import Deferred
from broker.network.dispatch import Close, Outcome
from broker.network.fair_line import owner_of
from broker.network.request_context import (
    RequestContext,
    authorize,
    cluster_operations,
    refused_topics,
    take_mutations,
)
from protocol.acls import Operation, ResourceType
from protocol.encoding import Encoded, encode, encode_element
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.metadata import (
    NO_TOPIC_ID,
    NOT_ASKED,
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

MAX_KEPT_BYTES = 32 * 1024 * 1024
"""Responses for all topics that are kept for senders with an authorizer, each for its own view."""

VersionAndListener = tuple[int, str]
"""What the entry of a topic depends on, beside the cache."""
View = tuple[int, str, Permissions | None]
"""What a response depends on, beside the cache: the last is None without an authorizer."""


@attrs.define(eq=False)
class AllTopics:
    """The responses to requests for all topics, encoded: one for each version, listener and view.

    They are kept until the metadata changes, and each topic in them until it changes itself.
    `encodings` counts how often a topic was encoded.
    """

    encodings: int = 0
    _responses: dict[View, Encoded] = attrs.field(factory=dict)
    _topics: dict[VersionAndListener, dict[str, tuple[int, Encoded]]] = attrs.field(factory=dict)
    _updates: int = -1
    _kept_bytes: int = 0

    def response(
        self,
        cache: MetadataCache,
        cluster_id: str,
        request: MetadataRequest,
        context: RequestContext,
        partitions: float,
    ) -> Encoded | None:
        """Return the response, or None after encoding about `partitions` partitions of it."""
        if self._updates != cache.updates:
            self._clear()
            self._updates = cache.updates

        # With an authorizer each sender may see other topics. Operations are not kept.
        view = None
        if context.sender is not None:
            view = context.sender.permissions(Operation.DESCRIBE, ResourceType.TOPIC)
        key = context.api_version, context.listener, view
        is_kept = not (
            request.include_topic_authorized_operations
            or request.include_cluster_authorized_operations
        )
        encoded = self._responses.get(key)
        if encoded is not None and is_kept:
            return encoded

        topics = self._encode(cache, context, partitions)
        if topics is None:
            return None
        visible = dict(zip(cache.topics(), topics, strict=True))
        if view is not None:
            for name in view.refused(list(visible)):
                del visible[name]
        if request.include_topic_authorized_operations:
            visible = _add_operations(visible, context)

        whole = _response(cache, cluster_id, list(visible.values()), request, context)
        encoded = Encoded(MetadataResponse, encode(whole, context.api_version))
        if is_kept:
            self._keep(key, encoded)
        return encoded

    def _keep(self, key: View, encoded: Encoded) -> None:
        # Views change with ACLs, and come and go with senders. Without them there are few keys.
        *_, view = key
        if view is not None:
            if self._kept_bytes + len(encoded.body) > MAX_KEPT_BYTES:
                self._clear()
            self._kept_bytes += len(encoded.body)
        self._responses[key] = encoded

    def _clear(self) -> None:
        self._responses.clear()
        self._kept_bytes = 0

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


_OPERATIONS = Struct(">i")
FIRST_FLEXIBLE_VERSION = 9


def _add_operations(topics: Mapping[str, Encoded], context: RequestContext) -> dict[str, Encoded]:
    """Write what the sender may do into the entries of topics, at whose end it stands (KIP-430)."""
    # A flexible version has the number of tagged fields behind it, which is 0.
    end = b"" if context.api_version < FIRST_FLEXIBLE_VERSION else b"\0"
    size = _OPERATIONS.size + len(end)
    return {
        name: entry._replace(
            body=entry.body[:-size]
            + _OPERATIONS.pack(operations_mask(context.sender, topic(name)))
            + end
        )
        for name, entry in topics.items()
    }


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
        with_operations = request.include_topic_authorized_operations
        topics = [_topic(cache, name, refused, create, with_operations, context) for name in names]
        return _response(cache, cluster_id, topics, request, context)

    # All topics: a large cluster's take several turns of the loop.
    def respond_if_encoded() -> Outcome | None:
        return all_topics.response(cache, cluster_id, request, context, PARTITIONS_A_TURN)

    # To encode the rest at once might take a second.
    def respond_late() -> Outcome:
        return Close("the metadata of all topics was not encoded in time")

    return deferred.respond_in_turns(
        respond_if_encoded, TURNS_TIMEOUT_MS, respond_late, owner_of(context)
    )


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
    request: MetadataRequest,
    context: RequestContext,
) -> MetadataResponse:
    operations = NOT_ASKED
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(context)
    return MetadataResponse(
        brokers=_brokers(cache, context.listener),
        cluster_id=cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
        cluster_authorized_operations=operations,
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
    with_operations: bool,
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
    operations = operations_mask(context.sender, topic(name)) if with_operations else NOT_ASKED
    if cache.has_topic(name):
        return _existing_topic(cache, name, context, operations)

    # A missing topic has an error, also while it is being created.
    code = _create_missing(cache, name, create, context)
    return MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
        topic_authorized_operations=(
            NOT_ASKED if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED else operations
        ),
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
    return authorize(context, Operation.CREATE, CLUSTER, quietly=True) or authorize(
        context, Operation.CREATE, topic(name)
    )


def _existing_topic(
    cache: MetadataCache, name: str, context: RequestContext, operations: int = NOT_ASKED
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[_partition(cache, state, context) for state in cache.partitions(name)],
        topic_authorized_operations=operations,
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
