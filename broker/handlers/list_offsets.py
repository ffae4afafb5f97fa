"""ListOffsets: the offset at a time, for consumers never beyond the high watermark.

Version 0 knows no times of records: it asks where segments begin that were written by then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from broker.cluster.metadata_cache import MetadataCache
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.replication.partition import Partition
from broker.replication.replica_manager import ReplicaManager
from core_log.log import Log
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
    error_response,
)
from protocol.topic_partition import TopicPartition

LATEST_TIME = -1
EARLIEST_TIME = -2
CONSUMER = -1
READ_COMMITTED = 1
FIRST_VERSION_OF_NOT_AVAILABLE = 5
"""From this version on a client knows OFFSET_NOT_AVAILABLE."""


LOOKED_UP_AT_ONCE = 32
"""Times that are looked up on the event loop for one request."""

LookUp = Callable[[Log, int], tuple[int, int] | None]
"""Finds the first record of a log at a time. Raises ApiError."""


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    timeout_ms: int,
    request: ListOffsetsRequest,
    context: RequestContext,
) -> ListOffsetsResponse | Wait:
    """Answer each partition; one asked twice in a request is refused. Times for which batches must
    be decompressed are looked up in a thread, for at most `timeout_ms`."""
    if context.api_version == 0:
        return _list_segments(replicas, cache, request, context.now_ms)
    times = list(_times(replicas, request))
    if len(times) <= LOOKED_UP_AT_ONCE and all(_is_found_soon(log, time) for log, time in times):
        return _answer_all(replicas, cache, request, context, Log.offset_for_timestamp)

    async def answer() -> ListOffsetsResponse:
        found = {(log, time): await _found(log, time, deferred) for log, time in times}

        def look_up(log: Log, time: int) -> tuple[int, int] | None:
            result = found.get((log, time))
            if isinstance(result, ApiError):
                raise result
            return result

        return _answer_all(replicas, cache, request, context, look_up)

    return deferred.respond(
        answer(),
        timeout_ms,
        lambda: error_response(request, ErrorCode.REQUEST_TIMED_OUT),
    )


def _times(replicas: ReplicaManager, request: ListOffsetsRequest) -> Iterator[tuple[Log, int]]:
    """The times that are asked for of logs that are here."""
    for topic in request.topics:
        for p in topic.partitions:
            partition = replicas.partitions.get(TopicPartition(topic.name, p.partition_index))
            if p.timestamp not in (LATEST_TIME, EARLIEST_TIME) and partition is not None:
                yield partition.log, p.timestamp


def _is_found_soon(log: Log, time: int) -> bool:
    try:
        return log.is_time_lookup_cheap(time)
    except ApiError:
        return True


async def _found(log: Log, time: int, deferred: Deferred) -> tuple[int, int] | ApiError | None:
    try:
        return await log.offset_for_timestamp_in_thread(time, deferred.in_thread)
    except ApiError as error:
        return error


def _answer_all(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: ListOffsetsRequest,
    context: RequestContext,
    look_up: LookUp,
) -> ListOffsetsResponse:
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
                    _answer(replicas, cache, asked, request, topic.name, p, context, look_up)
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
    request: ListOffsetsRequest,
    topic: str,
    p: ListOffsetsRequestPartition,
    context: RequestContext,
    look_up: LookUp,
) -> ListOffsetsResponsePartition:
    tp = TopicPartition(topic, p.partition_index)
    try:
        if asked[tp] > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{tp} is asked twice")
        if cache.partition_state(tp) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        stable_only = request.isolation_level == READ_COMMITTED
        timestamp, offset = _find(replicas, tp, request.replica_id, p, stable_only, look_up)
        epoch = replicas.log(tp).leader_epochs.epoch_of(offset) if offset >= 0 else -1
    except ApiError as error:
        code = _known(error.code, context.api_version)
        return ListOffsetsResponsePartition(partition_index=p.partition_index, error_code=code)
    return ListOffsetsResponsePartition(
        partition_index=p.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


def _known(code: ErrorCode, api_version: int) -> ErrorCode:
    """What a client of this version calls the error."""
    if code == ErrorCode.OFFSET_NOT_AVAILABLE and api_version < FIRST_VERSION_OF_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code


def _find(
    replicas: ReplicaManager,
    tp: TopicPartition,
    replica_id: int,
    p: ListOffsetsRequestPartition,
    stable_only: bool,
    look_up: LookUp,
) -> tuple[int, int]:
    partition = replicas.partition(tp)
    partition.require_leader(p.current_leader_epoch)
    log = partition.log
    end = log.log_end_offset
    if replica_id == CONSUMER:
        end = partition.last_stable_offset if stable_only else partition.high_watermark
    if p.timestamp == EARLIEST_TIME:
        return -1, log.log_start_offset
    if p.timestamp == LATEST_TIME:
        _require_known_end(partition, replica_id)
        return -1, end
    if log.config.magic == 0:
        raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, f"{tp} is kept without timestamps")
    found = look_up(log, p.timestamp)
    if found is None or found[1] >= end:
        _require_known_end(partition, replica_id)
        return -1, -1
    return found


def _require_known_end(partition: Partition, replica_id: int) -> None:
    """A new leader's watermark may lag behind the one its predecessor has told (KIP-207)."""
    if replica_id == CONSUMER and not partition.is_watermark_known:
        raise ApiError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"{partition.topic_partition}: the followers have not been heard yet",
        )


# ---- version 0


def _list_segments(
    replicas: ReplicaManager, cache: MetadataCache, request: ListOffsetsRequest, now_ms: int
) -> ListOffsetsResponse:
    def answer(topic: str, p: ListOffsetsRequestPartition) -> ListOffsetsResponsePartition:
        tp = TopicPartition(topic, p.partition_index)
        code, offsets = ErrorCode.NONE, []
        try:
            if cache.partition_state(tp) is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
            offsets = _segments_before(replicas, tp, request.replica_id, p, now_ms)
        except ApiError as error:
            code = _known(error.code, 0)
        return ListOffsetsResponsePartition(
            partition_index=p.partition_index, error_code=code, old_style_offsets=offsets
        )

    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponseTopic(
                name=topic.name, partitions=[answer(topic.name, p) for p in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _segments_before(
    replicas: ReplicaManager,
    tp: TopicPartition,
    replica_id: int,
    p: ListOffsetsRequestPartition,
    now_ms: int,
) -> list[int]:
    """Newest first; for a consumer the high watermark takes the place of all that is above it."""
    partition = replicas.partition(tp)
    partition.require_leader()
    if p.timestamp != EARLIEST_TIME:
        _require_known_end(partition, replica_id)
    if p.max_num_offsets < 0:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{p.max_num_offsets} offsets of {tp}")
    offsets = partition.log.offsets_before(p.timestamp, p.max_num_offsets, now_ms)
    end = partition.high_watermark
    if replica_id != CONSUMER or not offsets or offsets[0] <= end:
        return offsets
    return [end, *(offset for offset in offsets if offset <= end)]
