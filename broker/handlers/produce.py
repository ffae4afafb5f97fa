"""Produce: append each partition's batch, then answer, or wait until it is replicated.

What takes a while is checked in a thread, and appended on the event loop when it is done: batches
that decompress to much, that are written anew, or that hold very many records. Versions 0-2 bring
sets of messages instead, any number of them, in an older format, and those are always written anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import attrs

from broker.cluster.metadata_cache import INTERNAL_TOPICS, MetadataCache
from broker.network.deferred import Deferred
from broker.network.dispatch import NO_RESPONSE, Close, NoResponse, Outcome
from broker.network.down_conversion import AT_ONCE_BYTES, CONVERSION_TIMEOUT_MS, has_compressed
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from broker.replication.partition_waits import DURABLE_END, WATERMARK
from broker.replication.replica_manager import Check, ReplicaManager, ValidSet
from core_log.appending.appended import LogAppendInfo
from core_log.appending.validator import (
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_REWRITTEN_BYTES,
    Effort,
    ValidBatch,
    effort_of,
    is_compressed,
)
from core_log.log import AppendLater
from protocol.bounds import MAX_PRODUCED_BYTES
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

PARTITIONS_A_TURN = 20
"""Of one request, in the first turn twice as many; each append may begin a segment, which takes
half a millisecond."""
APPEND_TIMEOUT_MS = CONVERSION_TIMEOUT_MS
"""For the turns until all that was sent is appended; what is waited for then is the client's."""

ACKS_0_FAILED = Close("an acks=0 request failed")
"""What tells a client of the failure that waits for no response."""

OUT_OF_STEP = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
}
"""What an idempotent producer hears that has lost count, or of which we have: worth a line."""


@attrs.define(eq=False)
class _Pending:
    """One partition's part of the answer; `until` is the offset to be reached, or -1: by the high
    watermark, or, where the leader alone is asked, by what its disk has settled.

    `append_again` is there while nothing could be appended, for the log has to be flushed first.
    """

    tp: TopicPartition
    response: ProduceResponsePartition
    until: int = -1
    all_in_sync: bool = False
    append_again: Callable[[], _Pending] | None = None
    _is_trying: bool = False

    def try_again(self) -> bool:
        """Append what could not be appended; whether it is, or never will be.

        What is appended wakes who waits for the partition, this one too: not twice.
        """
        if self.append_again is None or self._is_trying:
            return not self._is_trying
        self._is_trying = True
        try:
            now = self.append_again()
        finally:
            self._is_trying = False
        self.response, self.until = now.response, now.until
        self.all_in_sync, self.append_again = now.all_in_sync, now.append_again
        return self.append_again is None


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
) -> Outcome:
    """Append. acks 0: no answer; 1: once in the log; -1: once all in-sync replicas have it."""
    if request.acks not in (-1, 0, 1):
        return _error(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if context.api_version < FIRST_VERSION_OF_FORMAT_2:
        return _handle_sets(replicas, cache, deferred, request, context)
    if _is_small(request):
        return _answer(replicas, request, list(_append_all(replicas, cache, request, context)))
    effort = _effort(replicas, request)
    if effort.rewritten_bytes or not effort.is_little:
        return _handle_batches(replicas, cache, deferred, request, context, effort)
    appending = _append_all(replicas, cache, request, context)
    return _answer_in_turns(replicas, deferred, request, appending)


def _is_small(request: ProduceRequest) -> bool:
    """Whether it takes too little to be worth a closer look."""
    partitions = size = 0
    for topic in request.topic_data:
        for p in topic.partition_data:
            if p.records is None or is_compressed(p.records):
                return False
            partitions += 1
            size += len(p.records)
    return size <= LITTLE_REWRITTEN_BYTES and partitions < PARTITIONS_A_TURN


def _effort(replicas: ReplicaManager, request: ProduceRequest) -> Effort:
    """What it takes to check the whole request."""
    rewritten_bytes = records = 0
    for topic in request.topic_data:
        for p in topic.partition_data:
            config = None
            if p.records is not None and len(p.records) > LITTLE_REWRITTEN_BYTES:
                found = replicas.partitions.get(TopicPartition(topic.name, p.index))
                config = found.log.config if found else None
            effort = effort_of(p.records, config)
            rewritten_bytes += effort.rewritten_bytes
            records += effort.records
    return Effort(rewritten_bytes, records)


def _answer_in_turns(
    replicas: ReplicaManager,
    deferred: Deferred,
    request: ProduceRequest,
    appending: Iterator[_Pending],
) -> Outcome:
    """Append to some partitions a turn, for each of them may begin a segment; then answer."""
    parts = list(islice(appending, PARTITIONS_A_TURN))
    if len(parts) < PARTITIONS_A_TURN:
        return _answer(replicas, request, parts)

    def append_more() -> Outcome | None:
        more = list(islice(appending, PARTITIONS_A_TURN))
        parts.extend(more)
        if len(more) == PARTITIONS_A_TURN:
            return None
        return _answer(replicas, request, parts)

    return deferred.respond_in_turns(append_more, APPEND_TIMEOUT_MS, partial(_late, request))


def _error(request: ProduceRequest, code: ErrorCode) -> Outcome:
    response = error_response(request, code)
    return NO_RESPONSE if response is None else response


def _late(request: ProduceRequest) -> Outcome:
    return _error(request, ErrorCode.REQUEST_TIMED_OUT)


def _answer(replicas: ReplicaManager, request: ProduceRequest, parts: list[_Pending]) -> Outcome:
    held = [part for part in parts if part.append_again is not None]
    if request.acks == 0:
        undone = [part for part in held if not _done(replicas, part)]
    else:
        undone = [part for part in parts if not _done(replicas, part)]
    if not undone:
        return _response(request, parts)

    def try_complete(expired: bool) -> Outcome | None:
        undone[:] = [part for part in undone if not _done(replicas, part)]
        if undone and not expired:
            return None
        for part in undone:
            part.response = _failed(part.tp, ErrorCode.REQUEST_TIMED_OUT)
        return _response(request, parts)

    return Wait(
        keys=tuple((key, part.tp) for part in held for key in (DURABLE_END, WATERMARK)),
        offsets=tuple(
            ((WATERMARK if part.all_in_sync else DURABLE_END, part.tp), part.until)
            for part in parts
            if part.until >= 0
        ),
        timeout_ms=request.timeout_ms,
        try_complete=try_complete,
    )


def _append_all(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: ProduceRequest,
    context: RequestContext,
) -> Iterator[_Pending]:
    for topic in request.topic_data:
        for p in topic.partition_data:
            tp = TopicPartition(topic.name, p.index)
            yield _append(replicas, cache, tp, p, request.acks, context)


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
    except AppendLater:
        return _held(tp, partial(_append, replicas, cache, tp, part, acks, context))
    except ApiError as error:
        return _refused(replicas, tp, error, context)
    return _appended(replicas, tp, appended, acks)


def _held(tp: TopicPartition, append_again: Callable[[], _Pending]) -> _Pending:
    return _Pending(tp, _failed(tp, ErrorCode.REQUEST_TIMED_OUT), append_again=append_again)


def _refused(
    replicas: ReplicaManager, tp: TopicPartition, error: ApiError, context: RequestContext
) -> _Pending:
    if error.code in OUT_OF_STEP:
        logger.info("%s: refused a batch of %r: %s", tp, context.client_id, error)
    start = replicas.log(tp).log_start_offset if tp in replicas.partitions else -1
    return _Pending(tp, _failed(tp, error.code, start))


def _check_topic(cache: MetadataCache, tp: TopicPartition, context: RequestContext) -> None:
    if tp.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp.topic} is written by brokers")
    if cache.partition_state(tp) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))


def _appended(
    replicas: ReplicaManager, tp: TopicPartition, appended: LogAppendInfo, acks: int
) -> _Pending:
    response = ProduceResponsePartition(
        index=tp.partition,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )
    end = appended.last_offset + 1
    if acks != -1 and replicas.log(tp).durable_end_offset >= end:
        return _Pending(tp, response)
    return _Pending(tp, response, end, acks == -1)


def _done(replicas: ReplicaManager, part: _Pending) -> bool:
    """Whether nothing more is to be waited for; a partition that was lost ends in an error."""
    if part.append_again is not None and replicas.awaits_flush(part.tp):
        return False
    if not part.try_again():
        return False
    if part.until < 0:
        return True
    try:
        partition = replicas.partition(part.tp)
        partition.require_leader()
        log = partition.log
        if log.failure is not None and log.durable_end_offset < part.until:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
    except ApiError as error:
        part.response, part.until = _failed(part.tp, error.code), -1
        return True
    reached = partition.high_watermark if part.all_in_sync else log.durable_end_offset
    if reached < part.until:
        return False
    if part.all_in_sync and not partition.is_enough_in_sync:
        part.response = _failed(part.tp, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    part.until = -1
    return True


def _response(
    request: ProduceRequest, parts: list[_Pending]
) -> ProduceResponse | Close | NoResponse:
    """What all parts come to; with acks=0 silence, or the connection's end."""
    if request.acks == 0:
        return ACKS_0_FAILED if any(part.response.error_code for part in parts) else NO_RESPONSE

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


# ---- what is checked apart


@attrs.define(eq=False)
class _Unchecked:
    """One partition's part of the request: to be checked, then appended. `begin` gives its check
    as things are now; `error` is what was wrong."""

    tp: TopicPartition
    begin: Callable[[], Check]
    check: Check = attrs.field(init=False)
    valid: ValidSet = ()
    error: ApiError | None = None
    appended: list[LogAppendInfo] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        try:
            self.check = self.begin()
        except ApiError as error:
            self.check = _refusing(error)

    def run_check(self, room: int) -> int:
        """May run in a thread: it reads what was sent and settings, nothing that changes. How many
        bytes it has decompressed, at most `room`."""
        self.valid, self.error = (), None
        try:
            self.valid = self.check(room)
        except ApiError as error:
            self.error = error
        return sum(each.decompressed_bytes for each in self.valid if isinstance(each, ValidBatch))

    def append(self, replicas: ReplicaManager, acks: int, context: RequestContext) -> _Pending:
        """On the event loop, some time after the check."""
        try:
            if self.error is not None:
                raise self.error
            appended = replicas.append_checked(
                self.tp,
                self.valid,
                lambda: self.begin()(MAX_PRODUCED_BYTES),
                all_in_sync=acks == -1,
                now_ms=context.now_ms,
                appended=self.appended,
            )
        except AppendLater:
            return _held(self.tp, partial(self.append, replicas, acks, context))
        except ApiError as error:
            return _refused(replicas, self.tp, error, context)
        return _appended(replicas, self.tp, appended, acks)


def _refusing(error: ApiError) -> Check:
    def check(room: int) -> ValidSet:
        raise error

    return check


def _handle_batches(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
    effort: Effort,
) -> Outcome:
    """Check on the event loop what decompresses to little; else all of it in a thread."""
    zstd_allowed = context.api_version >= FIRST_VERSION_OF_ZSTD

    def begin(tp: TopicPartition, records: Any) -> Check:
        _check_topic(cache, tp, context)
        return replicas.make_batch_check(
            tp, records, zstd_allowed=zstd_allowed, now_ms=context.now_ms
        )

    parts = _unchecked(request, begin)
    if effort.is_little and _check_little(parts):
        appending = (p.append(replicas, request.acks, context) for p in parts)
        return _answer_in_turns(replicas, deferred, request, appending)
    return _check_apart(replicas, deferred, request, context, parts)


def _check_little(parts: list[_Unchecked]) -> bool:
    """Whether all of it could be checked at once."""
    room = LITTLE_DECOMPRESSED_BYTES
    for part in parts:
        room -= part.run_check(room)
        if part.error is not None and part.error.code == ErrorCode.MESSAGE_TOO_LARGE:
            return False
    return True


def _handle_sets(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
) -> Outcome:
    """Versions 0-2: check on the event loop what takes no time; else in a thread."""

    def begin(tp: TopicPartition, records: Any) -> Check:
        _check_topic(cache, tp, context)
        return replicas.make_message_set_check(tp, records, context.now_ms)

    parts = _unchecked(request, begin)
    sets = [p.records or b"" for topic in request.topic_data for p in topic.partition_data]
    if sum(map(len, sets)) <= AT_ONCE_BYTES and not any(map(has_compressed, sets)):
        for part in parts:
            part.run_check(MAX_PRODUCED_BYTES)
        appending = (p.append(replicas, request.acks, context) for p in parts)
        return _answer_in_turns(replicas, deferred, request, appending)
    return _check_apart(replicas, deferred, request, context, parts)


def _unchecked(
    request: ProduceRequest, begin: Callable[[TopicPartition, Any], Check]
) -> list[_Unchecked]:
    return [
        _Unchecked(tp := TopicPartition(topic.name, p.index), partial(begin, tp, p.records))
        for topic in request.topic_data
        for p in topic.partition_data
    ]


def _check_apart(
    replicas: ReplicaManager,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
    parts: list[_Unchecked],
) -> Wait:
    """Check in a thread, with one bound for all batches as for one, and append when it is done."""

    def check() -> None:
        room = MAX_PRODUCED_BYTES
        for part in parts:
            room -= part.run_check(room)

    def append(_: None) -> Outcome:
        appending = (p.append(replicas, request.acks, context) for p in parts)
        return _answer_in_turns(replicas, deferred, request, appending)

    return deferred.respond_from_thread(
        check,
        CONVERSION_TIMEOUT_MS,
        partial(_late, request),
        append,
    )
