"""FindCoordinator: the leader of the partition of `__consumer_offsets` that keeps a group.

The request creates the topic if it is missing, whatever auto.create.topics.enable says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import Operation, group, transactional_id
from broker.network.request_context import RequestContext, require_authorized
from offsets.config import OffsetsConfig
from offsets.topic import offsets_partition, partition_for, topic_properties
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.topic_partition import TopicPartition

GROUP = 0
TRANSACTION = 1

CreateTopic = Callable[[str, int, int, Mapping[str, str]], object]
"""Name, partitions, replication factor, settings. Returns at once; raises ApiError."""


def handle(
    cache: MetadataCache,
    create_topic: CreateTopic,
    config: OffsetsConfig,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    """Name the coordinator. Raises ApiError; COORDINATOR_NOT_AVAILABLE while there is none."""

    # A transaction.
    if request.key_type == TRANSACTION:
        require_authorized(context, Operation.DESCRIBE, transactional_id(request.key))
        return _find_transaction_coordinator(cache, request, context)
    if request.key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type}")

    # A group. The topic is created only for a sender who may ask.
    require_authorized(context, Operation.DESCRIBE, group(request.key))
    partitions = cache.partition_count(OFFSETS_TOPIC)
    if not partitions:
        _create_topic(create_topic, config)
        # The client asks again until the partition has a leader.
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")
    return _find_leader(cache, offsets_partition(partition_for(request.key, partitions)), context)


def _find_transaction_coordinator(
    cache: MetadataCache, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Name a stock broker of the same cluster, which serves transactions and created the topic.

    Without the topic the response is TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the only error after
    which clients give up at once. A broker like this one that leads the topic responds so too.
    """
    partitions = cache.partition_count(TRANSACTIONS_TOPIC)
    if partitions:
        partition_id = partition_for(request.key, partitions)
        return _find_leader(cache, TopicPartition(TRANSACTIONS_TOPIC, partition_id), context)
    return FindCoordinatorResponse(
        error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        error_message="transactions are not served",
        node_id=-1,
        host="",
        port=-1,
    )


def _find_leader(
    cache: MetadataCache, topic_partition: TopicPartition, context: RequestContext
) -> FindCoordinatorResponse:
    # The address is the one on the listener that the client uses.
    leader = cache.leader_endpoint(topic_partition, context.listener)
    if leader is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic_partition} has no leader")

    node_id, endpoint = leader
    return FindCoordinatorResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        node_id=node_id,
        host=endpoint.host,
        port=endpoint.port,
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
