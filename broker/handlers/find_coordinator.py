"""FindCoordinator: the leader of the partition of `__consumer_offsets` that keeps a group.

Asking for it creates the topic if there is none, whatever auto.create.topics.enable says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.metadata_cache import MetadataCache
from broker.network.request_context import RequestContext
from offsets.config import OffsetsConfig
from offsets.topic import OFFSETS_TOPIC, offsets_partition, partition_for, topic_properties
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.topic_partition import TopicPartition

GROUP, TRANSACTION = 0, 1
TRANSACTIONS_TOPIC = "__transaction_state"

CreateTopic = Callable[[str, int, int, Mapping[str, str]], object]
"""Name, partitions, replication factor, settings. Returns at once; raises ApiError."""


def handle(
    cache: MetadataCache,
    create_topic: CreateTopic,
    config: OffsetsConfig,
    request: FindCoordinatorRequest,
    context: RequestContext,
) -> FindCoordinatorResponse:
    """Name the coordinator. Raises ApiError, COORDINATOR_NOT_AVAILABLE while there is none."""
    if request.key_type == TRANSACTION:
        return _of_transactions(cache, request, context)
    if request.key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type}")
    partitions = cache.partition_count(OFFSETS_TOPIC)
    if not partitions:
        _create(create_topic, config)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")
    return _leader(cache, offsets_partition(partition_for(request.key, partitions)), context)


def _of_transactions(
    cache: MetadataCache, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    """Stock brokers that share the cluster serve transactions, and have made the topic for them.

    Without it a transactional producer is told the one thing that makes clients give up at once,
    and so it is by a broker like this one that leads the topic.
    """
    partitions = cache.partition_count(TRANSACTIONS_TOPIC)
    if partitions:
        tp = TopicPartition(TRANSACTIONS_TOPIC, partition_for(request.key, partitions))
        return _leader(cache, tp, context)
    return FindCoordinatorResponse(
        error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        error_message="transactions are not served",
        node_id=-1,
        host="",
        port=-1,
    )


def _leader(
    cache: MetadataCache, tp: TopicPartition, context: RequestContext
) -> FindCoordinatorResponse:
    leader = cache.leader_endpoint(tp, context.listener)
    if leader is None:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{tp} has no leader")
    node_id, host, port = leader
    return FindCoordinatorResponse(
        error_code=ErrorCode.NONE, error_message=None, node_id=node_id, host=host, port=port
    )


def _create(create_topic: CreateTopic, config: OffsetsConfig) -> None:
    try:
        create_topic(
            OFFSETS_TOPIC,
            config.topic_num_partitions,
            config.topic_replication_factor,
            topic_properties(config),
        )
    except ApiError as error:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
