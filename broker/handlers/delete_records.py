"""DeleteRecords: give up what is below an offset, on every live replica (KIP-107).

The leader moves its log start offset at once. Its followers hear of it in their next fetch and
tell how far they are with the one after that; the answer waits for them.
"""

from __future__ import annotations

import attrs

from broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache
from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.replication.partition_waits import START
from broker.replication.replica_manager import ReplicaManager
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from protocol.topic_partition import TopicPartition

HIGH_WATERMARK = -1


@attrs.define(eq=False)
class _Deletion:
    """One partition's part: `offset` is what every replica's log must begin at or above."""

    tp: TopicPartition
    offset: int = -1
    low_watermark: int = -1
    error: ErrorCode = ErrorCode.NONE


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> Outcome:
    """Delete, then answer or wait up to `timeout_ms` for the followers."""
    deletions = [
        _delete(replicas, cache, TopicPartition(topic.name, p.partition_index), p)
        for topic in request.topics
        for p in topic.partitions
    ]

    def try_complete(expired: bool) -> DeleteRecordsResponse | None:
        waiting = [each for each in deletions if not _is_done(replicas, cache, each)]
        if waiting and not expired:
            return None
        for each in waiting:
            each.error = ErrorCode.REQUEST_TIMED_OUT
        return _response(deletions)

    keys = tuple((START, each.tp) for each in deletions if each.error == ErrorCode.NONE)
    return try_complete(False) or Wait(keys, request.timeout_ms, try_complete)


def _delete(
    replicas: ReplicaManager,
    cache: MetadataCache,
    tp: TopicPartition,
    p: DeleteRecordsRequestPartition,
) -> _Deletion:
    try:
        if tp.topic in INTERNAL_TOPICS:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is kept by brokers")
        if cache.partition_state(tp) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        partition = replicas.partition(tp)
        partition.require_leader()
        if "delete" not in partition.log.config.cleanup_policy:
            raise ApiError(ErrorCode.POLICY_VIOLATION, f"{tp} is compacted and nothing else")
        offset = partition.high_watermark if p.offset == HIGH_WATERMARK else p.offset
        if not 0 <= offset <= partition.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{tp} has no {offset} to delete up to")
        if partition.log.increment_log_start_offset(offset):
            replicas.notify_log_start(tp)
    except ApiError as error:
        return _Deletion(tp, error=error.code)
    return _Deletion(tp, offset)


def _is_done(replicas: ReplicaManager, cache: MetadataCache, each: _Deletion) -> bool:
    if each.error != ErrorCode.NONE:
        return True
    try:
        partition = replicas.partition(each.tp)
        partition.require_leader()
    except ApiError as error:
        each.error = error.code
        return True
    each.low_watermark = partition.low_watermark(cache.brokers.keys())
    return each.low_watermark >= each.offset


def _response(deletions: list[_Deletion]) -> DeleteRecordsResponse:
    by_topic: dict[str, list[DeleteRecordsResponsePartition]] = {}
    for each in deletions:
        by_topic.setdefault(each.tp.topic, []).append(
            DeleteRecordsResponsePartition(
                partition_index=each.tp.partition,
                low_watermark=-1 if each.error else each.low_watermark,
                error_code=each.error,
            )
        )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
    )
