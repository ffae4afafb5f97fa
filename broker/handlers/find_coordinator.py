"""FindCoordinator: the leader of the partition of `__consumer_offsets` that keeps a group.

Asking for it creates the topic if there is none, whatever auto.create.topics.enable says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.dispatch import RequestContext
from broker.metadata_cache import MetadataCache
from offsets.config import OffsetsConfig
from offsets.topic import OFFSETS_TOPIC, offsets_partition, partition_for, topic_properties
from protocol.errors import ApiError, ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1

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
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "transactions are not served")
    if request.key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {request.key_type}")
    partitions = cache.partition_count(OFFSETS_TOPIC)
    if not partitions:
        _create(create_topic, config)
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")
    tp = offsets_partition(partition_for(request.key, partitions))
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
