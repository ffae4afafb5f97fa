"""FindCoordinator: the leader of the partition that keeps a group, or a transactional id.

The request creates the topic if it is missing, whatever auto.create.topics.enable says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.internal_topics import InternalTopic
from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import Resource, group, transactional_id
from broker.network.request_context import RequestContext, require_authorized
from offsets.topic import partition_for
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.find_coordinator import (
    GROUP_KEY,
    TRANSACTION_KEY,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FindCoordinatorResponseCoordinator,
    no_coordinator,
)
from protocol.topic_partition import TopicPartition

FIRST_VERSION_OF_SEVERAL_KEYS = 4

_KEPT_IN: Mapping[int, tuple[str, Callable[[str], Resource]]] = {
    GROUP_KEY: (OFFSETS_TOPIC, group),
    TRANSACTION_KEY: (TRANSACTIONS_TOPIC, transactional_id),
}
"""Type of key -> the topic that keeps such keys, and what a sender must be allowed to describe."""

CreateTopic = Callable[[InternalTopic], object]
"""Begins to create a topic. Returns at once; raises ApiError."""


def handle(
    cache: MetadataCache,
    create_topic: CreateTopic,
    topics: Mapping[str, InternalTopic],
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    """Name the coordinator of each key; COORDINATOR_NOT_AVAILABLE and why while there is none.

    Raises ApiError if the type of the keys is unknown.
    """
    if request.key_type not in _KEPT_IN:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type}")
    name, resource = _KEPT_IN[request.key_type]

    def find(key: str) -> FindCoordinatorResponseCoordinator:
        # The topic is created only for a sender who may ask.
        require_authorized(context, Operation.DESCRIBE, resource(key))
        return _find(cache, create_topic, topics[name], key, context)

    # Several keys: each has an error of its own (KIP-699).
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_KEYS:
        return FindCoordinatorResponse(
            coordinators=[_find_or_refuse(find, key) for key in request.coordinator_keys]
        )

    coordinator = _find_or_refuse(find, request.key)
    return FindCoordinatorResponse(
        error_code=coordinator.error_code,
        error_message=coordinator.error_message,
        node_id=coordinator.node_id,
        host=coordinator.host,
        port=coordinator.port,
    )


def _find_or_refuse(
    find: Callable[[str], FindCoordinatorResponseCoordinator], key: str
) -> FindCoordinatorResponseCoordinator:
    try:
        return find(key)
    except ApiError as error:
        # Why there is none is worth to be read; who may not ask learns nothing.
        is_missing = error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        return no_coordinator(key, error.code, error.detail if is_missing else None)


def _find(
    cache: MetadataCache,
    create_topic: CreateTopic,
    topic: InternalTopic,
    key: str,
    context: RequestContext,
) -> FindCoordinatorResponseCoordinator:
    partitions = cache.key_partition_count(topic.name)
    if not partitions:
        create_missing(create_topic, topic)
        # The client asks again until the partition has a leader.
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic.name} is being created")

    topic_partition = TopicPartition(topic.name, partition_for(key, partitions))
    return _find_leader(cache, key, topic_partition, context)


def _find_leader(
    cache: MetadataCache, key: str, topic_partition: TopicPartition, context: RequestContext
) -> FindCoordinatorResponseCoordinator:
    # The address is the one on the listener that the client uses.
    leader = cache.leader_endpoint(topic_partition, context.listener)
    if leader is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_partition} has no leader")

    node_id, endpoint = leader
    return FindCoordinatorResponseCoordinator(
        key=key, node_id=node_id, host=endpoint.host, port=endpoint.port
    )


def create_missing(create_topic: CreateTopic, topic: InternalTopic) -> None:
    """Begin to create the topic. Raises ApiError COORDINATOR_NOT_AVAILABLE."""
    try:
        create_topic(topic)
    except ApiError as error:
        # Too few brokers, perhaps: the client asks again.
        reason = f"{topic.name} cannot be created: {error.detail or error.code.name}"
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason) from error
