"""Produce: append each partition's batch, then answer, or wait until it is replicated.

Versions 0-2 bring sets of messages instead, any number of them, in an older format. They are
written anew for the log, which may take a while: large ones are checked and converted in a thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from broker.connection import CLOSE
from broker.deferred import Deferred
from broker.dispatch import RequestContext
from broker.down_conversion import AT_ONCE_BYTES, CONVERSION_TIMEOUT_MS, has_compressed
from broker.metadata_cache import INTERNAL_TOPICS, MetadataCache
from broker.purgatory import Wait
from broker.replica_manager import ReplicaManager
from core_log.appended import Appended
from core_log.message_validator import ValidMessages
from core_log.validator import ValidBatch
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseTopic,
    error_response,
)
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

FIRST_VERSION_OF_FORMAT_2 = 3
FIRST_VERSION_OF_ZSTD = 7
ADMIN_CLIENT_ID = "__admin_client"

OUT_OF_STEP = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}
"""What an idempotent producer hears that has lost count, or of which we have: worth a line."""

ValidSet = Sequence[ValidBatch | ValidMessages]


@attrs.define(eq=False)
class _Pending:
    """One partition's part of the answer; `until` is the offset to be reached, or -1: by the high
    watermark, or, where the leader alone is asked, by what its disk has settled."""

    tp: TopicPartition
    response: ProduceResponsePartition
    until: int = -1
    all_in_sync: bool = False


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
) -> Any:
    """Append. acks 0: no answer; 1: once in the log; -1: once all in-sync replicas have it."""
    if request.acks not in (-1, 0, 1):
        return error_response(request, ErrorCode.INVALID_REQUIRED_ACKS, context.api_version)
    if context.api_version < FIRST_VERSION_OF_FORMAT_2:
        return _handle_sets(replicas, cache, deferred, request, context)
    parts = [
        _append(replicas, cache, TopicPartition(topic.name, p.index), p, request.acks, context)
        for topic in request.topic_data
        for p in topic.partition_data
    ]
    return _answer(replicas, request, parts)


def _answer(replicas: ReplicaManager, request: ProduceRequest, parts: list[_Pending]) -> Any:
    if request.acks == 0:
        failed = any(part.response.error_code for part in parts)
        return CLOSE if failed else None
    if all(_done(replicas, part) for part in parts):
        return _response(parts)
    return Wait(
        keys=tuple(part.tp for part in parts if part.until >= 0),
        timeout_ms=request.timeout_ms,
        try_complete=lambda expired: _try_complete(replicas, parts, expired),
    )


def _append(
    replicas: ReplicaManager,
    cache: MetadataCache,
    tp: TopicPartition,
    part: ProduceRequestPartition,
    acks: int,
    context: RequestContext,
) -> _Pending:
    try:
        _check_topic(cache, tp, context)
        appended = replicas.append(
            tp,
            part.records,
            all_in_sync=acks == -1,
            zstd_allowed=context.api_version >= FIRST_VERSION_OF_ZSTD,
            now_ms=context.now_ms,
        )
    except ApiError as error:
        if error.code in OUT_OF_STEP:
            logger.info("%s: refused a batch of %r: %s", tp, context.client_id, error)
        start = replicas.log(tp).log_start_offset if tp in replicas.partitions else -1
        return _Pending(tp, _failed(tp, error.code, start))
    return _appended(replicas, tp, appended, acks)


def _check_topic(cache: MetadataCache, tp: TopicPartition, context: RequestContext) -> None:
    if tp.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is written by brokers")
    if cache.partition_state(tp) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))


def _appended(
    replicas: ReplicaManager, tp: TopicPartition, appended: Appended, acks: int
) -> _Pending:
    response = ProduceResponsePartition(
        index=tp.partition,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    end = appended.last_offset + 1
    if acks != -1 and replicas.log(tp).settled_end >= end:
        return _Pending(tp, response)
    return _Pending(tp, response, end, acks == -1)


def _done(replicas: ReplicaManager, part: _Pending) -> bool:
    """Whether nothing more is to be waited for; a partition that was lost ends in an error."""
    if part.until < 0:
        return True
    try:
        partition = replicas.partition(part.tp)
        partition.require_leader()
        log = partition.log
        if log.failure is not None and log.settled_end < part.until:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
    except ApiError as error:
        part.response, part.until = _failed(part.tp, error.code), -1
        return True
    reached = partition.high_watermark if part.all_in_sync else log.settled_end
    if reached < part.until:
        return False
    if part.all_in_sync and not partition.is_enough_in_sync:
        part.response = _failed(part.tp, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    part.until = -1
    return True


def _try_complete(replicas: ReplicaManager, parts: list[_Pending], expired: bool) -> Any:
    done = [_done(replicas, part) for part in parts]
    if not all(done):
        if not expired:
            return None
        for part in parts:
            if part.until >= 0:
                part.response = _failed(part.tp, ErrorCode.REQUEST_TIMED_OUT)
    return _response(parts)


def _response(parts: list[_Pending]) -> ProduceResponse:
    by_topic: dict[str, list[ProduceResponsePartition]] = {}
    for part in parts:
        by_topic.setdefault(part.tp.topic, []).append(part.response)
    return ProduceResponse(
        responses=[
            ProduceResponseTopic(name=name, partition_responses=partitions)
            for name, partitions in by_topic.items()
        ]
    )


def _failed(
    tp: TopicPartition, code: ErrorCode, log_start_offset: int = -1
) -> ProduceResponsePartition:
    """The start tells a producer that is not known any more whether retention took its records."""
    return ProduceResponsePartition(
        index=tp.partition, error_code=code, base_offset=-1, log_start_offset=log_start_offset
    )


# ---- versions 0-2


@attrs.define(eq=False)
class _MessageSet:
    """One partition's messages: to be checked, then appended; `error` is what was wrong so far."""

    tp: TopicPartition
    records: Any
    check: Callable[[], ValidSet] = tuple
    valid: ValidSet = ()
    error: ApiError | None = None

    def run_check(self) -> None:
        """May run in a thread: it reads what was sent and settings, nothing that changes."""
        try:
            self.valid = self.check()
        except ApiError as error:
            self.error = error


def _handle_sets(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
) -> Any:
    """Check on the event loop what takes no time; else in a thread, and append when it is done."""
    sets = [
        _message_set(replicas, cache, TopicPartition(topic.name, p.index), p, context)
        for topic in request.topic_data
        for p in topic.partition_data
    ]

    def check() -> None:
        for one in sets:
            one.run_check()

    def append(_: None) -> Any:
        parts = [_append_set(replicas, one, request.acks, context.now_ms) for one in sets]
        return _answer(replicas, request, parts)

    if sum(len(one.records or b"") for one in sets) <= AT_ONCE_BYTES and not any(
        has_compressed(one.records or b"") for one in sets
    ):
        check()
        return append(None)
    return deferred.answer_from_thread(
        check,
        CONVERSION_TIMEOUT_MS,
        lambda: error_response(request, ErrorCode.REQUEST_TIMED_OUT, context.api_version),
        append,
    )


def _message_set(
    replicas: ReplicaManager,
    cache: MetadataCache,
    tp: TopicPartition,
    part: ProduceRequestPartition,
    context: RequestContext,
) -> _MessageSet:
    made = _MessageSet(tp, part.records)
    try:
        _check_topic(cache, tp, context)
        made.check = replicas.check_of_set(tp, part.records, context.now_ms)
    except ApiError as error:
        made.error = error
    return made


def _append_set(replicas: ReplicaManager, one: _MessageSet, acks: int, now_ms: int) -> _Pending:
    try:
        if one.error is not None:
            raise one.error
        appended = replicas.append_set(
            one.tp, one.valid, one.records, all_in_sync=acks == -1, now_ms=now_ms
        )
    except ApiError as error:
        return _Pending(one.tp, _failed(one.tp, error.code))
    return _appended(replicas, one.tp, appended, acks)
