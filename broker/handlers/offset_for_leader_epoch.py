"""OffsetForLeaderEpoch: where an epoch ended in the leader's log, for replicas that truncate."""

from __future__ import annotations

from collections.abc import Collection

from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import CLUSTER
from broker.network.request_context import NO_TOPICS, RequestContext, authorize, refused_topics
from broker.replication.replica_manager import ReplicaManager
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochRequestPartition,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochResponsePartition,
    OffsetForLeaderEpochResponseTopic,
)
from protocol.topic_partition import TopicPartition


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: OffsetForLeaderEpochRequest,
    context: RequestContext,
) -> OffsetForLeaderEpochResponse:
    """Respond for each partition from the epochs of its log."""
    refused = _refused(request, context)
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[
                    _find_end(replicas, cache, refused, topic.topic, partition_request)
                    for partition_request in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _refused(request: OffsetForLeaderEpochRequest, context: RequestContext) -> Collection[str]:
    """Return the topics that the sender may not describe: CLUSTER_ACTION allows all."""
    if authorize(context, Operation.CLUSTER_ACTION, CLUSTER, quietly=True):
        return NO_TOPICS
    return refused_topics(context, Operation.DESCRIBE, (topic.topic for topic in request.topics))


def _find_end(
    replicas: ReplicaManager,
    cache: MetadataCache,
    refused: Collection[str],
    topic: str,
    partition_request: OffsetForLeaderEpochRequestPartition,
) -> OffsetForLeaderEpochResponsePartition:
    topic_partition = TopicPartition(topic, partition_request.partition)
    try:
        if topic in refused:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic)

        # A follower may ask before this broker's metadata shows the partition.
        state = cache.partition_state(topic_partition)
        if state is None and topic_partition not in replicas.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))
        partition = replicas.partition(topic_partition)
        partition.require_leader(partition_request.current_leader_epoch)
    except ApiError as error:
        return OffsetForLeaderEpochResponsePartition(
            error_code=error.code, partition=partition_request.partition
        )

    # The largest epoch up to the one that is asked for, and its end.
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_for(
        partition_request.leader_epoch, log.log_end_offset
    )
    return OffsetForLeaderEpochResponsePartition(
        error_code=ErrorCode.NONE,
        partition=partition_request.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )
