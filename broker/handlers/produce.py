"""Produce: append each partition's batch, then respond, or wait until it is replicated.

Batches that take long to check are checked in a thread and appended on the event loop afterwards:
those that decompress to much, that are rewritten, or that hold very many records. Versions 0-2
bring message sets of an older format instead, with any number of messages, and those are always
rewritten.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.handlers.waiting_parts import WaitingParts
from broker.network.authorization import transactional_id
from broker.network.deferred import Deferred
from broker.network.dispatch import NO_RESPONSE, Close, NoResponse, Outcome
from broker.network.down_conversion import AT_ONCE_BYTES, CONVERSION_TIMEOUT_MS, has_compressed
from broker.network.fair_line import owner_of
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext, authorize, refused_topics
from broker.replication.partition_waits import DURABLE_END, WATERMARK
from broker.replication.replica_manager import Check, ReplicaManager, ValidSet
from core_log.appending.appended import LogAppendInfo
from core_log.appending.validator import (
    LITTLE_DECOMPRESSED_BYTES,
    LITTLE_REWRITTEN_BYTES,
    Effort,
    RecordsRefused,
    effort_of,
    is_compressed,
    is_transactional,
)
from core_log.log import AppendLater
from protocol.acls import Operation
from protocol.bounds import MAX_PRODUCED_BYTES
from protocol.errors import ApiError, ErrorCode, let_go
from protocol.internal_topics import ADMIN_CLIENT_ID, INTERNAL_TOPICS
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceResponse,
    ProduceResponsePartition,
    ProduceResponseRecordError,
    ProduceResponseTopic,
    error_response,
)
from protocol.records.room import Room
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


# Record batches (KIP-98), and zstd (KIP-110).
FIRST_VERSION_OF_FORMAT_2 = 3
FIRST_VERSION_OF_ZSTD = 7
# The client id that may write to internal topics, as in Kafka.

PARTITIONS_A_TURN = 20
"""Partitions of one request that are appended to in one turn of the loop, twice as many in the
first. Each append may begin a segment, which takes half a millisecond."""
APPEND_TIMEOUT_MS = CONVERSION_TIMEOUT_MS
"""Time for the turns until all is appended. The client's timeout counts from then on."""

ACKS_0_FAILED = Close("an acks=0 request failed")
"""A closed connection is all that tells a client of the failure of a request without response."""

OUT_OF_STEP = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_TXN_STATE,
}
"""Errors after which a producer with an id and this broker disagree; they are logged."""

Refusals = Mapping[str, ErrorCode]
"""Topics that the sender may not write to, with the error for their partitions."""

NOTHING_REFUSED: Refusals = {}


@attrs.define(eq=False)
class _Part:
    """One partition's part of the response.

    `until`: offset to wait for (-1: none). acks=all waits for the high watermark, acks=1 for the
    flushed end. `append_again` is set while nothing could be appended, because the log has to be
    flushed first.
    """

    topic_partition: TopicPartition
    response: ProduceResponsePartition
    until: int = -1
    all_in_sync: bool = False
    append_again: Callable[[], _Part] | None = None
    records: bytes | memoryview | None = None
    """What the producer sent, as long as it is to be appended."""
    _is_trying: bool = False

    def try_again(self) -> bool:
        """Append what could not be appended; return whether it is appended or has failed.

        An append wakes the requests that wait for the partition, and this one is among them:
        `_is_trying` keeps it from appending twice.
        """
        if self.append_again is None or self._is_trying:
            return not self._is_trying

        self._is_trying = True
        try:
            part = self.append_again()
        finally:
            self._is_trying = False

        self.response = part.response
        self.until = part.until
        self.all_in_sync = part.all_in_sync
        self.append_again = part.append_again
        self.records = part.records
        return self.append_again is None


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
) -> Outcome:
    """Append. acks 0: no response; 1: respond after the append; -1: when the ISR has the records.

    Topics that the sender may not write to are refused, and the others are served.
    """
    if request.acks not in (-1, 0, 1):
        return _error(request, ErrorCode.INVALID_REQUIRED_ACKS)
    refusals = find_refusals(request, context)

    # Old formats are always rewritten.
    if context.api_version < FIRST_VERSION_OF_FORMAT_2:
        return _handle_sets(replicas, cache, deferred, request, context, refusals)

    # Nearly all requests are small: append in this turn of the loop.
    if _is_small(request):
        appending = _append_all(replicas, cache, request, context, refusals)
        return _respond(replicas, request, list(appending))

    # Others are measured first, and may need a thread or several turns.
    effort = _effort(replicas, request)
    if effort.rewritten_bytes or not effort.is_little:
        return _handle_batches(replicas, cache, deferred, request, context, refusals, effort)
    appending = _append_all(replicas, cache, request, context, refusals)
    return _respond_in_turns(replicas, deferred, request, appending)


def _is_small(request: ProduceRequest) -> bool:
    """Return whether the request takes too little work to be measured."""
    partitions = size = 0
    for topic in request.topic_data:
        for partition in topic.partition_data:
            # Compressed records may come to any size.
            if partition.records is None or is_compressed(partition.records):
                return False
            partitions += 1
            size += len(partition.records)
    return size <= LITTLE_REWRITTEN_BYTES and partitions < PARTITIONS_A_TURN


def _effort(replicas: ReplicaManager, request: ProduceRequest) -> Effort:
    """Measure what it takes to check the whole request."""
    rewritten_bytes = records = 0
    for topic in request.topic_data:
        for partition in topic.partition_data:
            # Whether a batch is rewritten depends on its topic. A small one is rewritten at once.
            config = None
            if partition.records is not None and len(partition.records) > LITTLE_REWRITTEN_BYTES:
                replica = replicas.partitions.get(TopicPartition(topic.name, partition.index))
                config = replica.log.config if replica else None

            effort = effort_of(partition.records, config)
            rewritten_bytes += effort.rewritten_bytes
            records += effort.records
    return Effort(rewritten_bytes, records)


# ---- authorization


def find_refusals(request: ProduceRequest, context: RequestContext) -> Refusals:
    """Return the topics that the sender may not write to (KIP-11, KIP-98).

    Transactional batches need their transactional id, and all batches their topic. Other batches
    with a producer id need no more (KIP-679).
    """
    name = request.transactional_id
    if _has_transactional(request) and (
        name is None or not authorize(context, Operation.WRITE, transactional_id(name))
    ):
        names = (topic.name for topic in request.topic_data)
        return dict.fromkeys(names, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    if context.sender is None:
        return NOTHING_REFUSED
    names = (topic.name for topic in request.topic_data)
    refused = refused_topics(context, Operation.WRITE, names)
    return dict.fromkeys(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _has_transactional(request: ProduceRequest) -> bool:
    """Return whether any batch is transactional."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            if is_transactional(partition.records):
                return True
    return False


# ---- the response


def _respond_in_turns(
    replicas: ReplicaManager,
    deferred: Deferred,
    request: ProduceRequest,
    appending: Iterator[_Part],
) -> Outcome:
    """Append to PARTITIONS_A_TURN partitions in each turn of the loop, then respond."""
    parts = list(islice(appending, PARTITIONS_A_TURN))
    # Fewer than a turn takes: these were all.
    if len(parts) < PARTITIONS_A_TURN:
        return _respond(replicas, request, parts)

    def append_more() -> Outcome | None:
        more = list(islice(appending, PARTITIONS_A_TURN))
        parts.extend(more)
        if len(more) == PARTITIONS_A_TURN:
            return None
        return _respond(replicas, request, parts)

    return deferred.respond_in_turns(append_more, APPEND_TIMEOUT_MS, partial(_late, request))


def _error(request: ProduceRequest, code: ErrorCode) -> Outcome:
    response = error_response(request, code)
    return NO_RESPONSE if response is None else response


def _late(request: ProduceRequest) -> Outcome:
    return _error(request, ErrorCode.REQUEST_TIMED_OUT)


def _respond(replicas: ReplicaManager, request: ProduceRequest, parts: list[_Part]) -> Outcome:
    """Respond, or wait for what `acks` asks for."""
    # With acks=0 only what could not be appended yet is waited for.
    held = [part for part in parts if part.append_again is not None]
    if request.acks == 0:
        undone = [part for part in held if not _is_done(replicas, part)]
    else:
        undone = [part for part in parts if not _is_done(replicas, part)]
    if not undone:
        return _response(request, parts)

    # A part is tried when its own partition moves. What was put off waits for the flush or a new
    # leader, what is appended for its offset.
    waiting = WaitingParts.of(
        undone,
        partial(_is_done, replicas),
        partial(_end_late, replicas),
        partial(_response, request, parts),
    )
    return Wait(
        keys=tuple(
            (key, part.topic_partition) for part in held for key in (DURABLE_END, WATERMARK)
        ),
        offsets=tuple(
            ((WATERMARK if part.all_in_sync else DURABLE_END, part.topic_partition), part.until)
            for part in parts
            if part.until >= 0
        ),
        timeout_ms=request.timeout_ms,
        try_complete=waiting.try_complete,
        note_moved=waiting.note_moved,
    )


def go_on(
    replicas: ReplicaManager,
    cache: MetadataCache,
    done: Sequence[LogAppendInfo],
    request: ProduceRequest,
    context: RequestContext,
) -> Outcome:
    """Append what comes after the first batches, which are `done`; then respond, or wait."""
    appended = iter(done)
    parts = []
    for topic in request.topic_data:
        for partition in topic.partition_data:
            topic_partition = TopicPartition(topic.name, partition.index)

            if (info := next(appended, None)) is not None:
                part = _appended(replicas, topic_partition, info, request.acks)
            else:
                part = _append(replicas, cache, topic_partition, partition, request.acks, context)
            parts.append(part)
    return _respond(replicas, request, parts)


def _append_all(
    replicas: ReplicaManager,
    cache: MetadataCache,
    request: ProduceRequest,
    context: RequestContext,
    refusals: Refusals,
) -> Iterator[_Part]:
    """Append one partition's batch with each step."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            topic_partition = TopicPartition(topic.name, partition.index)

            if refusals and topic.name in refusals:
                yield _Part(topic_partition, _failed(topic_partition, refusals[topic.name]))
            else:
                yield _append(replicas, cache, topic_partition, partition, request.acks, context)


def _append(
    replicas: ReplicaManager,
    cache: MetadataCache,
    topic_partition: TopicPartition,
    partition: ProduceRequestPartition,
    acks: int,
    context: RequestContext,
) -> _Part:
    try:
        _check_topic(cache, topic_partition, context)
        appended = replicas.append(
            topic_partition,
            partition.records,
            all_in_sync=acks == -1,
            zstd_allowed=context.api_version >= FIRST_VERSION_OF_ZSTD,
            now_ms=context.now_ms,
        )
    except AppendLater:
        # Nothing was appended: the log must be flushed first.
        append_again = partial(_append, replicas, cache, topic_partition, partition, acks, context)
        return _held(topic_partition, partition.records, append_again)
    except ApiError as error:
        return _refused(replicas, topic_partition, partition.records, error, context)
    return _appended(replicas, topic_partition, appended, acks)


def _held(
    topic_partition: TopicPartition,
    records: bytes | memoryview | None,
    append_again: Callable[[], _Part],
) -> _Part:
    # The response if the log takes nothing in time.
    late = _failed(topic_partition, ErrorCode.REQUEST_TIMED_OUT)
    return _Part(topic_partition, late, append_again=append_again, records=records)


def _refused(
    replicas: ReplicaManager,
    topic_partition: TopicPartition,
    records: bytes | memoryview | None,
    error: ApiError,
    context: RequestContext,
) -> _Part:
    # The others are never sent again, and those behind them come (fault strangers-125, was: True).
    is_sent_again = error.code.retriable
    if is_sent_again:
        replicas.refused.note(topic_partition, records)
    if error.code in OUT_OF_STEP:
        logger.info("%s: refused a batch of %r: %s", topic_partition, context.client_id, error)

    # A producer compares it with the offset that it wrote last.
    log_start_offset = -1
    if topic_partition in replicas.partitions:
        log_start_offset = replicas.log(topic_partition).log_start_offset
    return _Part(topic_partition, _failed(topic_partition, error.code, log_start_offset, error))


def _check_topic(
    cache: MetadataCache, topic_partition: TopicPartition, context: RequestContext
) -> None:
    topic = topic_partition.topic
    if topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is written by brokers")
    if cache.partition_state(topic_partition) is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(topic_partition))


def _appended(
    replicas: ReplicaManager, topic_partition: TopicPartition, appended: LogAppendInfo, acks: int
) -> _Part:
    response = ProduceResponsePartition(
        index=topic_partition.partition,
        error_code=ErrorCode.NONE,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=appended.log_start_offset,
    )

    # acks 0 and 1 need no wait if no flush is due.
    end = appended.last_offset + 1
    if acks != -1 and replicas.log(topic_partition).durable_end_offset >= end:
        return _Part(topic_partition, response)
    return _Part(topic_partition, response, end, acks == -1)


def _is_done(replicas: ReplicaManager, part: _Part) -> bool:
    """Return whether a part waits for nothing more. A partition led elsewhere ends in an error."""
    # Not appended yet: the log has to be flushed first.
    if part.append_again is not None and replicas.awaits_flush(part.topic_partition):
        return False
    if not part.try_again():
        return False
    if part.until < 0:
        return True

    # A new leader, or a log that failed, will not get there.
    try:
        partition = replicas.partition(part.topic_partition)
        partition.require_leader()
        log = partition.log
        if log.failure is not None and log.durable_end_offset < part.until:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
    except ApiError as error:
        part.response = _failed(part.topic_partition, error.code)
        part.until = -1
        return True

    # Replicated, or flushed.
    reached = partition.high_watermark if part.all_in_sync else log.durable_end_offset
    if reached < part.until:
        return False
    # The ISR has shrunk since: the records stay, on too few replicas.
    if part.all_in_sync and not partition.is_enough_in_sync:
        code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        part.response = _failed(part.topic_partition, code)
    part.until = -1
    return True


def _end_late(replicas: ReplicaManager, part: _Part) -> None:
    if part.append_again is not None:
        # It is not appended, and the next one may come (fault strangers-126).
        replicas.refused.note(part.topic_partition, part.records)
    part.response = _failed(part.topic_partition, ErrorCode.REQUEST_TIMED_OUT)


def _response(request: ProduceRequest, parts: list[_Part]) -> ProduceResponse | Close | NoResponse:
    """Join the parts; with acks=0 respond nothing, or close the connection if one has failed."""
    if request.acks == 0:
        return ACKS_0_FAILED if any(part.response.error_code for part in parts) else NO_RESPONSE

    by_topic: dict[str, list[ProduceResponsePartition]] = {}
    for part in parts:
        by_topic.setdefault(part.topic_partition.topic, []).append(part.response)
    return ProduceResponse(
        responses=[
            ProduceResponseTopic(name=name, partition_responses=partitions)
            for name, partitions in by_topic.items()
        ]
    )


def _failed(
    topic_partition: TopicPartition,
    code: ErrorCode,
    log_start_offset: int = -1,
    error: ApiError | None = None,
) -> ProduceResponsePartition:
    """Return the part of a failure.

    A producer that is not known any more learns by `log_start_offset` whether retention took its
    records, and one whose `error` names some of its records may send the others again.
    """
    refused = error if isinstance(error, RecordsRefused) else None
    return ProduceResponsePartition(
        index=topic_partition.partition,
        error_code=code,
        base_offset=-1,
        log_start_offset=log_start_offset,
        record_errors=[
            ProduceResponseRecordError(batch_index=index, batch_index_error_message=message)
            for index, message in (refused.records if refused else ())
        ],
        error_message=refused.message if refused else None,
    )


# ---- batches that are checked first, perhaps in a thread


@attrs.define(eq=False)
class _Unchecked:
    """One partition's part of the request, which is checked and then appended.

    `begin` returns its check under the present settings. `refusal`: the error if the sender may not
    write to the topic. `error` is the failure of the check.
    """

    topic_partition: TopicPartition
    records: bytes | memoryview | None
    begin: Callable[[], Check]
    refusal: ErrorCode | None = None
    check: Check = attrs.field(init=False)
    valid: ValidSet = ()
    error: ApiError | None = None
    appended: list[LogAppendInfo] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        # A failure is the partition's own, so it is raised where others are appended.
        try:
            self.check = _nothing_to_check if self.refusal else self.begin()
        except ApiError as error:
            self.check = _failing(error.code, error.detail)

    def run_check(self, room: Room) -> None:
        """Check what may decompress to `room`, and take from it what was decompressed.

        This may run in a thread: it reads the records and settings, nothing that changes.
        """
        # A check is repeated where the loop had too little room for it.
        self.valid = ()
        self.error = None
        try:
            self.valid = self.check(room)
        except ApiError as error:
            self.error = error
            # Its traceback has this object in it, and what was decompressed (fault security-0).
            let_go(error)

    def append(self, replicas: ReplicaManager, acks: int, context: RequestContext) -> _Part:
        """Append on the event loop, some time after the check."""
        if self.refusal:
            return _Part(self.topic_partition, _failed(self.topic_partition, self.refusal))
        # Not raised again: see `run_check`.
        if self.error is not None:
            return _refused(replicas, self.topic_partition, self.records, self.error, context)
        try:
            appended = replicas.append_checked(
                self.topic_partition,
                self.valid,
                lambda: self.begin()(Room(MAX_PRODUCED_BYTES)),
                all_in_sync=acks == -1,
                now_ms=context.now_ms,
                appended=self.appended,
            )
        except AppendLater:
            again = partial(self.append, replicas, acks, context)
            return _held(self.topic_partition, self.records, again)
        except ApiError as error:
            return _refused(replicas, self.topic_partition, self.records, error, context)
        return _appended(replicas, self.topic_partition, appended, acks)


def _failing(code: ErrorCode, detail: str) -> Check:
    def check(room: Room) -> ValidSet:
        raise ApiError(code, detail)

    return check


def _nothing_to_check(room: Room) -> ValidSet:
    return ()


def _handle_batches(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
    refusals: Refusals,
    effort: Effort,
) -> Outcome:
    """Check on the event loop if all decompresses to little, otherwise in a thread."""
    zstd_allowed = context.api_version >= FIRST_VERSION_OF_ZSTD

    def begin(topic_partition: TopicPartition, records: Any) -> Check:
        _check_topic(cache, topic_partition, context)
        return replicas.make_batch_check(
            topic_partition, records, zstd_allowed=zstd_allowed, now_ms=context.now_ms
        )

    # "Little" is only a guess from the sizes: a batch may turn out to decompress to much.
    parts = _unchecked(request, begin, refusals)
    if effort.is_little and _check_little(parts):
        appending = (part.append(replicas, request.acks, context) for part in parts)
        return _respond_in_turns(replicas, deferred, request, appending)
    return _check_in_thread(replicas, deferred, request, context, parts)


def _check_little(parts: list[_Unchecked]) -> bool:
    """Check as much as the event loop has time for; return whether that was everything."""
    room = Room(LITTLE_DECOMPRESSED_BYTES)
    for part in parts:
        part.run_check(room)
        # Too much for the room on the loop: a thread has more.
        if part.error is not None and part.error.code == ErrorCode.MESSAGE_TOO_LARGE:
            return False
    return True


def _handle_sets(
    replicas: ReplicaManager,
    cache: MetadataCache,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
    refusals: Refusals,
) -> Outcome:
    """Serve versions 0-2: check small message sets on the event loop, others in a thread."""

    def begin(topic_partition: TopicPartition, records: Any) -> Check:
        _check_topic(cache, topic_partition, context)
        return replicas.make_message_set_check(topic_partition, records, context.now_ms)

    parts = _unchecked(request, begin, refusals)
    sets = [
        partition.records or b""
        for topic in request.topic_data
        for partition in topic.partition_data
    ]
    # Small and uncompressed: nothing takes long.
    if sum(map(len, sets)) <= AT_ONCE_BYTES and not any(map(has_compressed, sets)):
        for part in parts:
            part.run_check(Room(MAX_PRODUCED_BYTES))
        appending = (part.append(replicas, request.acks, context) for part in parts)
        return _respond_in_turns(replicas, deferred, request, appending)
    return _check_in_thread(replicas, deferred, request, context, parts)


def _unchecked(
    request: ProduceRequest, begin: Callable[[TopicPartition, Any], Check], refusals: Refusals
) -> list[_Unchecked]:
    return [
        _Unchecked(
            topic_partition := TopicPartition(topic.name, partition.index),
            partition.records,
            partial(begin, topic_partition, partition.records),
            refusals.get(topic.name),
        )
        for topic in request.topic_data
        for partition in topic.partition_data
    ]


def _check_in_thread(
    replicas: ReplicaManager,
    deferred: Deferred,
    request: ProduceRequest,
    context: RequestContext,
    parts: list[_Unchecked],
) -> Wait:
    """Check in a thread, then append on the loop. All batches share the bound of one."""

    def check() -> None:
        room = Room(MAX_PRODUCED_BYTES)
        for part in parts:
            part.run_check(room)

    def append(_: None) -> Outcome:
        # Leadership is asked again: it may have moved during the check.
        appending = (part.append(replicas, request.acks, context) for part in parts)
        return _respond_in_turns(replicas, deferred, request, appending)

    return deferred.respond_from_thread(
        check,
        CONVERSION_TIMEOUT_MS,
        partial(_late, request),
        append,
        owner_of(context),
    )
