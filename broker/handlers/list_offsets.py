"""ListOffsets: the offset at a time, for consumers never beyond the high watermark."""

from __future__ import annotations

from collections import Counter

from broker.dispatch import RequestContext
from broker.metadata_cache import MetadataCache
from broker.replica_manager import ReplicaManager
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.topic_partition import TopicPartition

LATEST_TIME = -1
EARLIEST_TIME = -2
CONSUMER = -1


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsResponse:
    """Answer each partition; one asked twice in a request is refused."""
    asked = Counter(
        TopicPartition(topic.name, p.partition_index)
        for topic in request.topics
        for p in topic.partitions
    )
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name,
                partitions=[
                    _answer(replicas, cache, asked, request.replica_id, topic.name, p)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    replicas: ReplicaManager,
    cache: MetadataCache,
    asked: Counter[TopicPartition],
    replica_id: int,
    topic: str,
    p: ListOffsetsRequestPartition,
) -> ListOffsetsResponsePartition:
    tp = TopicPartition(topic, p.partition_index)
    try:
        if asked[tp] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{tp} is asked twice")
        if cache.partition_state(tp) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        timestamp, offset = _find(replicas, tp, replica_id, p)
        epoch = replicas.log(tp).leader_epochs.epoch_of(offset) if offset >= 0 else -1
    except ApiError as error:
        return ListOffsetsResponsePartition(
            partition_index=p.partition_index, error_code=error.code
        )
    return ListOffsetsResponsePartition(
        partition_index=p.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _find(
    replicas: ReplicaManager, tp: TopicPartition, replica_id: int, p: ListOffsetsRequestPartition
) -> tuple[int, int]:
    partition = replicas.partition(tp)
    partition.require_leader(p.current_leader_epoch)
    log = partition.log
    end = partition.high_watermark if replica_id == CONSUMER else log.log_end_offset
    if p.timestamp == LATEST_TIME:
        return -1, end
    if p.timestamp == EARLIEST_TIME:
        return -1, log.log_start_offset
    found = log.offset_for_timestamp(p.timestamp)
    if found is None or found[1] >= end:
        return -1, -1
    return found
