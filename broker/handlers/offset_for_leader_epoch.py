"""OffsetForLeaderEpoch: where an epoch ended in the leader's log, for who wants to cut its own."""

from __future__ import annotations

from broker.cluster.metadata_cache import MetadataCache
from broker.network.request_context import RequestContext
from broker.replication.replica_manager import ReplicaManager
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
    """Answer each partition from the epochs of its log."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponseTopic(
                topic=topic.topic,
                partitions=[_answer(replicas, cache, topic.topic, p) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(
    replicas: ReplicaManager,
    cache: MetadataCache,
    topic: str,
    p: OffsetForLeaderEpochRequestPartition,
) -> OffsetForLeaderEpochResponsePartition:
    tp = TopicPartition(topic, p.partition)
    try:
        if cache.partition_state(tp) is None and tp not in replicas.partitions:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        partition = replicas.partition(tp)
        partition.require_leader(p.current_leader_epoch)
    except ApiError as error:
        return OffsetForLeaderEpochResponsePartition(error_code=error.code, partition=p.partition)
    log = partition.log
    epoch, end_offset = log.leader_epochs.end_offset_for(p.leader_epoch, log.log_end_offset)
    return OffsetForLeaderEpochResponsePartition(
        error_code=ErrorCode.NONE,
        partition=p.partition,
        leader_epoch=epoch,
        end_offset=end_offset,
    )
