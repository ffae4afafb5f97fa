"""DeleteRecords: delete the records below an offset, on every live replica (KIP-107).

The leader moves its log start offset at once. Its followers learn it with their next fetch, and
report their own with the fetch after that. The response waits for them.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.network.dispatch import Outcome
from broker.network.pending_responses import Remaining, respond_or_wait
from broker.network.request_context import RequestContext, refused_topics
from broker.replication.partition_waits import START
from broker.replication.replica_manager import ReplicaManager
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsResponsePartition,
    DeleteRecordsResponseTopic,
)
from protocol.topic_partition import TopicPartition

# Kafka's number for everything that is committed.
HIGH_WATERMARK = -1


@attrs.define(eq=False)
class _Deletion:
    """One partition's part: every replica's log must begin at `offset` or above."""

    topic_partition: TopicPartition
    offset: int = -1
    low_watermark: int = -1
    error: ErrorCode = ErrorCode.NONE


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> Outcome:
    """Delete, then respond, or wait up to `timeout_ms` for the followers."""
    refused = refused_topics(context, Operation.DELETE, (topic.name for topic in request.topics))
    # What is named again counts as it is named last, as in Kafka (fault strangers-10).
    named = {
        TopicPartition(topic.name, partition_request.partition_index): partition_request.offset
        for topic in request.topics
        for partition_request in topic.partitions
    }
    deletions = [
        _delete(replicas, cache, refused, topic_partition, offset)
        for topic_partition, offset in named.items()
    ]

    # A part that has failed waits for nothing.
    begun = [deletion for deletion in deletions if deletion.error == ErrorCode.NONE]
    remaining = Remaining([*begun], partial(_is_done, replicas, cache))

    def try_complete(expired: bool) -> DeleteRecordsResponse | None:
        if remaining.has_any() and not expired:
            return None

        # What is deleted stays deleted; only the followers are late.
        for deletion in remaining.list_undone():
            deletion.error = ErrorCode.REQUEST_TIMED_OUT
        return _response(deletions)

    keys = [(START, deletion.topic_partition) for deletion in begun]
    return respond_or_wait(try_complete, keys, request.timeout_ms)


def _delete(
    replicas: ReplicaManager,
    cache: MetadataCache,
    refused: Collection[str],
    topic_partition: TopicPartition,
    offset: int,
) -> _Deletion:
    topic = topic_partition.topic
    if topic in refused:
        return _Deletion(topic_partition, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    # Brokers keep it.
    if topic in INTERNAL_TOPICS:
        return _Deletion(topic_partition, error=ErrorCode.INVALID_TOPIC_EXCEPTION)
    if cache.partition_state(topic_partition) is None:
        return _Deletion(topic_partition, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    try:
        partition = replicas.partition(topic_partition)
        partition.require_leader()
        # A compacted topic must keep the newest record of each key.
        if "delete" not in partition.log.config.cleanup_policy:
            reason = f"{topic_partition} is compacted and nothing else"
            raise ApiError(ErrorCode.POLICY_VIOLATION, reason)

        # Above the high watermark records may still be truncated.
        if offset == HIGH_WATERMARK:
            offset = partition.high_watermark
        if not 0 <= offset <= partition.high_watermark:
            reason = f"{topic_partition} has no {offset} to delete up to"
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        # False if the log starts there already.
        if partition.log.increment_log_start_offset(offset):
            replicas.notify_log_start(topic_partition)
    except ApiError as error:
        return _Deletion(topic_partition, error=error.code)
    return _Deletion(topic_partition, offset)


def _is_done(replicas: ReplicaManager, cache: MetadataCache, deletion: _Deletion) -> bool:
    """Return whether all live replicas begin at the offset, or the deletion has failed."""
    if deletion.error != ErrorCode.NONE:
        return True
    try:
        partition = replicas.partition(deletion.topic_partition)
        partition.require_leader()
    except ApiError as error:
        deletion.error = error.code
        return True

    # A broker that is down does not hold the response back.
    deletion.low_watermark = partition.low_watermark(cache.brokers.keys())
    return deletion.low_watermark >= deletion.offset


def _response(deletions: list[_Deletion]) -> DeleteRecordsResponse:
    by_topic: dict[str, list[DeleteRecordsResponsePartition]] = {}
    for deletion in deletions:
        by_topic.setdefault(deletion.topic_partition.topic, []).append(
            DeleteRecordsResponsePartition(
                partition_index=deletion.topic_partition.partition,
                low_watermark=-1 if deletion.error else deletion.low_watermark,
                error_code=deletion.error,
            )
        )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsResponseTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
    )
