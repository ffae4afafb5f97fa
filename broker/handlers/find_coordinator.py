"""FindCoordinator: the leader of the partition of `__consumer_offsets` that keeps a group.

The request creates the topic if it is missing, whatever auto.create.topics.enable says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import group
from broker.network.authorization import transactional_id as resource_of_transactions
from broker.network.request_context import RequestContext, require_authorized
from offsets.config import OffsetsConfig
from offsets.topic import offsets_partition, partition_for, topic_properties
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

CreateTopic = Callable[[str, int, int, Mapping[str, str]], object]
"""Name, partitions, replication factor, settings. Returns at once; raises ApiError."""


def handle(
    cache: MetadataCache,
    create_topic: CreateTopic,
    config: OffsetsConfig,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    """Name the coordinator of each key; COORDINATOR_NOT_AVAILABLE while there is none.

    Raises ApiError if there is but one key, and none can be named.
    """
    if request.key_type not in (GROUP_KEY, TRANSACTION_KEY):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type}")

    def find(key: str) -> FindCoordinatorResponseCoordinator:
        if request.key_type == TRANSACTION_KEY:
            return _find_transaction_coordinator(cache, key, context)
        return _find_group_coordinator(cache, create_topic, config, key, context)

    # Several keys: each has an error of its own (KIP-699).
    if context.api_version >= FIRST_VERSION_OF_SEVERAL_KEYS:
        return FindCoordinatorResponse(
            coordinators=[_find_or_refuse(find, key) for key in request.coordinator_keys]
        )

    coordinator = find(request.key)
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
        return no_coordinator(key, error.code)


def _find_group_coordinator(
    cache: MetadataCache,
    create_topic: CreateTopic,
    config: OffsetsConfig,
    group_id: str,
    context: RequestContext,
) -> FindCoordinatorResponseCoordinator:
    # The topic is created only for a sender who may ask.
    require_authorized(context, Operation.DESCRIBE, group(group_id))
    partitions = cache.partition_count(OFFSETS_TOPIC)
    if not partitions:
        _create_topic(create_topic, config)
        # The client asks again until the partition has a leader.
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")

    topic_partition = offsets_partition(partition_for(group_id, partitions))
    return _find_leader(cache, group_id, topic_partition, context)


def _find_transaction_coordinator(
    cache: MetadataCache, transactional_id: str, context: RequestContext
) -> FindCoordinatorResponseCoordinator:
    """Name a stock broker of the same cluster, which serves transactions and created the topic.

    Without the topic the response is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error after
    which clients give up at once. A broker like this one that leads the topic responds so too.
    """
    require_authorized(context, Operation.DESCRIBE, resource_of_transactions(transactional_id))
    partitions = cache.partition_count(TRANSACTIONS_TOPIC)
    if partitions:
        partition_id = partition_for(transactional_id, partitions)
        topic_partition = TopicPartition(TRANSACTIONS_TOPIC, partition_id)
        return _find_leader(cache, transactional_id, topic_partition, context)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return no_coordinator(transactional_id, code, "transactions are not served")


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


def _create_topic(create_topic: CreateTopic, config: OffsetsConfig) -> None:
    try:
        create_topic(
            OFFSETS_TOPIC,
            config.topic_num_partitions,
            config.topic_replication_factor,
            topic_properties(config),
        )
    except ApiError as error:
        # Too few brokers, perhaps: the client asks again.
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
