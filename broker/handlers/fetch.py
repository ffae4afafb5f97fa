"""Fetch: ranges of log files, at once or when `min_bytes` of them are there.

Partitions are read in the order of the request. The first one with records gives at least one batch
whatever the limits (KIP-74). A consumer reads up to the high watermark; a consumer of committed
data up to the last stable offset, and gets the names of the transactions that were aborted
(KIP-98). A follower reads up to the log's end, and the offsets it asks for tell the leader how far
it is. A reader that names the epoch of its last record learns where its log parts from the
leader's (KIP-595). A throttled follower that is not in sync gets nothing while the quota is
exceeded. Sessions: `fetch_sessions`.

Versions 0-3 read older formats, and records in a newer one are converted for them
(`down_conversion`). Versions 0-2 take no byte more than they ask for, even if that cuts the first
message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import groupby
from typing import Any

import attrs

from broker.cluster.metadata_cache import MetadataCache
from broker.network.authorization import CLUSTER
from broker.network.deferred import Deferred
from broker.network.dispatch import FetchedParts, Outcome
from broker.network.down_conversion import (
    AT_ONCE_BYTES,
    CONVERSION_PAUSE_MS,
    CONVERSION_S,
    CONVERSION_TIMEOUT_MS,
    LED_BYTES,
    Conversion,
    Hold,
    convert_for_old_reader,
)
from broker.network.fair_line import Owner, owner_of
from broker.network.purgatory import Wait
from broker.network.request_context import (
    RequestContext,
    authorize,
    most_fetched_bytes,
    refused_topics,
)
from broker.replication.fetch_sessions import (
    MOST_OF_CONSUMER,
    FetchContext,
    FetchSessions,
    Part,
    RequestedPartition,
    group_by_topic,
)
from broker.replication.partition import Partition
from broker.replication.partition_waits import END, WATERMARK
from broker.replication.replica_manager import FetchedRange, ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.messages.fetch import (
    NOT_DIVERGING,
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
    FetchResponseAbortedTransaction,
    FetchResponseEpochEndOffset,
    FetchResponsePartition,
    error_response,
    partition_error,
)
from protocol.records.compression import CompressionUnavailable
from protocol.records.convert import NoOlderForm
from protocol.records.corrupt_record import CorruptRecord
from protocol.special_values import READ_COMMITTED
from protocol.topic_partition import TopicPartition

# The versions of KIP-110, KIP-98, KIP-32 and KIP-74.
FIRST_VERSION_OF_ZSTD = 10
FIRST_VERSION_OF_FORMAT_2 = 4
FIRST_VERSION_OF_FORMAT_1 = 2
FIRST_VERSION_OF_SOFT_LIMITS = 3
_EMPTY = b""


@frozen
class _OldReader:
    """Limits of versions 0-3: no format above `magic`, `hard_limits` if no byte more than asked."""

    magic: int
    hard_limits: bool
    deferred: Deferred
    owner: Owner


@frozen
class _Reader:
    """One request with all that is needed to read for it, kept while it waits."""

    replicas: ReplicaManager
    cache: MetadataCache
    fetch_max_bytes: int
    quota: ReplicationQuota
    request: FetchRequest
    context: FetchContext
    sent: RequestContext
    old: _OldReader | None = None

    @property
    def api_version(self) -> int:
        """Return the version of the request."""
        return self.sent.api_version

    @property
    def max_bytes(self) -> int:
        """Return how many bytes the response may have at most."""
        return min(self.request.max_bytes, self.fetch_max_bytes)

    @property
    def is_follower(self) -> bool:
        """Return whether a broker asks, for its own replicas."""
        return self.request.replica_id >= 0

    @property
    def stable_only(self) -> bool:
        """Return whether a consumer reads only what transactions have committed (KIP-98)."""
        return self.request.isolation_level == READ_COMMITTED and not self.is_follower

    def end_of(self, partition: Partition) -> int:
        """Return the offset up to which it may read, exclusive."""
        if self.is_follower:
            return partition.log.log_end_offset
        return partition.last_stable_offset if self.stable_only else partition.high_watermark

    def offset_of(self, partition: Partition, asked: FetchRequestPartition) -> int:
        """Return where it is to be read from: an old reader is led over what has no message."""
        offset = asked.fetch_offset
        # What is before the log's start is out of range.
        if self.old is not None and offset >= partition.log.log_start_offset:
            # It would ask for the same for ever (fault strangers-100).
            offset = partition.barren.behind(offset)
        return offset

    def has_more(self, part: Part) -> bool:
        """Return whether the next request must look at the partition, even if nothing moves in it.

        It must after an error, while there is more to read, and while a follower's fetch may still
        change something.
        """
        topic_partition, response = part
        session = self.context.session
        partition = self.replicas.partitions.get(topic_partition)
        if response.error_code != ErrorCode.NONE or partition is None or session is None:
            return True
        # The reader truncates, and asks again.
        if response.diverging_epoch is not NOT_DIVERGING:
            return True

        if session.asks_below(topic_partition, self.end_of(partition)):
            return True
        return self.is_follower and not partition.needs_nothing_from(self.request.replica_id)

    def is_throttled(self, partition: Partition) -> bool:
        """Return whether what a follower reads of this partition counts towards the quota."""
        if not self.is_follower:
            return False
        listed = partition.log.config.leader_throttled
        return self.quota.covers(partition.topic_partition.partition, listed)

    def is_held_back(self, partition: Partition) -> bool:
        """Return whether this follower gets nothing of the partition now."""
        if not self.is_throttled(partition) or not self.quota.is_exceeded:
            return False
        replica = self.request.replica_id
        # One that is about to join the ISR holds up all writers too, for as long as
        # replica.lag.time.max.ms (fault strangers-38, was: replica in partition.isr).
        is_awaited = partition.waits_for(replica, self.quota.monotonic_ms())
        return not is_awaited


def handle(
    replicas: ReplicaManager,
    cache: MetadataCache,
    sessions: FetchSessions,
    fetch_max_bytes: int,
    deferred: Deferred,
    quota: ReplicationQuota,
    request: FetchRequest,
    context: RequestContext,
) -> Outcome:
    """Read, or wait up to `max_wait_ms`. Topics that the sender may not read are refused."""
    # A session knows the partitions that its request does not name (KIP-227).
    try:
        fetch = sessions.open(
            request,
            context.monotonic_ms,
            context.connection,
            owner_of(context).client,
            _most_followed(replicas, request, context),
        )
    except ApiError as error:
        return FetchResponse(error_code=error.code, responses=[])

    if context.sender is not None:
        fetch = attrs.evolve(fetch, refused=_refused(request, fetch, context))

    # A client with a quota gets no more at once than fits into it.
    if request.replica_id < 0:
        fetch_max_bytes = most_fetched_bytes(context, fetch_max_bytes)

    request = _without_names(request, fetch)
    version = context.api_version
    old = None if version >= FIRST_VERSION_OF_FORMAT_2 else _old_reader(context, deferred)
    reader = _Reader(replicas, cache, fetch_max_bytes, quota, request, fetch, context, old)

    if reader.is_follower:
        # The offsets that a follower asks for are what it has.
        session = None if fetch.session is None else fetch.session.fetches
        replicas.follower_progress.note_follower_fetch(
            request.replica_id, fetch.requested, context.monotonic_ms, session
        )

    return _respond_or_wait(reader)


def go_on(
    replicas: ReplicaManager,
    cache: MetadataCache,
    fetch_max_bytes: int,
    quota: ReplicationQuota,
    fetch: FetchContext,
    try_short: Callable[[], FetchedParts | None],
    request: FetchRequest,
    context: RequestContext,
) -> Outcome:
    """Do what is left of a consumer's request that the short way has begun.

    `try_short()` returns the response if there is enough, and no error to report.
    """
    reader = _Reader(replicas, cache, fetch_max_bytes, quota, request, fetch, context)
    return _respond_or_wait(reader, try_short)


def _respond_or_wait(
    reader: _Reader, try_short: Callable[[], FetchedParts | None] = lambda: None
) -> Outcome:
    """Respond at once if there is enough; otherwise wait for it."""
    if reader.request.max_wait_ms <= 0:
        return _respond(reader)

    session = reader.context.session
    waiting = _Waiting(reader, try_short, {} if session is None else session.moved)
    if waiting.look_at_all():
        return _respond(reader)
    return Wait(
        keys=_waits_under(reader),
        timeout_ms=reader.request.max_wait_ms,
        try_complete=waiting.try_complete,
        note_moved=waiting.note_moved,
        request=reader.request,
    )


@attrs.define(eq=False)
class _Waiting:
    """A request that waits, with the bytes that are there for it.

    A try looks at the partitions that have moved since the last one, and not at all of them: one
    record in each of N partitions would cost N * N looks.
    """

    reader: _Reader
    try_short: Callable[[], FetchedParts | None]
    _moved: dict[TopicPartition, None]
    """Those that have moved; of a session its own ones."""
    _readable: dict[TopicPartition, int] = attrs.field(factory=dict)
    _readable_sum: int = 0
    _held_back: dict[TopicPartition, None] = attrs.field(factory=dict)
    _named: dict[TopicPartition, FetchRequestPartition] | None = None
    """The partitions of a request without a session."""

    def note_moved(self, key: Any) -> None:
        """Look at the key's partition with the next try. A session knows its own."""
        if self.reader.context.session is None:
            _, topic_partition = key
            self._moved[topic_partition] = None

    def try_complete(self, expired: bool) -> Outcome | None:
        """Respond if there is enough, or the time is up."""
        context = self.reader.context
        # The session has partitions that this request never named, and of which nobody has asked
        # whether its sender may read them (fault security-1).
        if context.is_overtaken:
            return _overtaken(context)

        # Nor is a permission still there because it was when the request came (fault security-1).
        if self._is_refused_more():
            return _respond(self.reader)

        if not expired and not self.has_enough():
            return None
        return self.try_short() or _respond(self.reader)

    def _is_refused_more(self) -> bool:
        """Return whether ACLs have changed so that other topics are refused now; note these."""
        reader = self.reader
        if reader.sent.sender is None:
            return False
        sender = reader.sent.sender.now()
        if sender is reader.sent.sender:
            return False

        sent = reader.sent._replace(sender=sender)
        refused = _refused(reader.request, reader.context, sent)
        context = attrs.evolve(reader.context, refused=refused)
        self.reader = attrs.evolve(reader, sent=sent, context=context)
        return set(refused) != set(reader.context.refused)

    def has_enough(self) -> bool:
        """Return whether to respond now: enough bytes, nothing asked, or an error to report."""
        reader = self.reader
        min_bytes = min(reader.request.min_bytes, reader.max_bytes)
        if min_bytes <= 0 or reader.context.is_due:
            return True

        for topic_partition, partition_request in self._take_moved():
            readable = _readable_bytes(reader, topic_partition, partition_request)
            if readable is None:
                return True
            self._readable_sum += readable
            # The response reads them all again (fault strangers-10).
            if self._readable_sum >= min_bytes:
                return True
            if readable:
                self._readable[topic_partition] = readable
            elif reader.is_follower:
                self._note_held_back(topic_partition)
        return False

    def look_at_all(self) -> bool:
        """Return the same, whatever was looked at before."""
        self._moved.clear()
        return self.has_enough()

    def _take_moved(self) -> Sequence[RequestedPartition]:
        """Return the partitions to look at, and count nothing for them."""
        # The quota lets go of all partitions at once, and nothing moves in them then.
        if self._held_back and not self.reader.quota.is_exceeded:
            self._moved.update(self._held_back)
            self._held_back.clear()

        # What was looked at and has not moved since is as it was (fault scale-S3).
        if self._moved:
            return self._take_these()

        # Nothing says what has moved.
        self._readable.clear()
        self._readable_sum = 0
        return self.reader.context.requested

    def _take_these(self) -> Sequence[RequestedPartition]:
        refused = self.reader.context.refused
        moved = [tp for tp in self._moved if tp.topic not in refused]
        self._moved.clear()
        for topic_partition in moved:
            self._readable_sum -= self._readable.pop(topic_partition, 0)
        return [
            (topic_partition, requested)
            for topic_partition in moved
            if (requested := self._request_for(topic_partition)) is not None
        ]

    def _request_for(self, topic_partition: TopicPartition) -> FetchRequestPartition | None:
        context = self.reader.context
        if context.session is not None:
            known = context.session.partitions.get(topic_partition)
            return None if known is None else known.request

        if self._named is None:
            self._named = dict(context.named)
        return self._named.get(topic_partition)

    def _note_held_back(self, topic_partition: TopicPartition) -> None:
        if self.reader.is_held_back(self.reader.replicas.partition(topic_partition)):
            self._held_back[topic_partition] = None


def _overtaken(context: FetchContext) -> FetchResponse:
    assert context.session is not None, "without a session nothing overtakes a request"
    return FetchResponse(
        error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        session_id=context.session.id,
        responses=[],
    )


def _most_followed(replicas: ReplicaManager, request: FetchRequest, context: RequestContext) -> int:
    """Return how many partitions a follower's session may have; 0 for who is no broker."""
    if request.replica_id < 0:
        return 0
    if not authorize(context, Operation.CLUSTER_ACTION, CLUSTER, quietly=True):
        return 0
    # Where all are believed, none has many that are not there.
    return max(MOST_OF_CONSUMER, 2 * len(replicas.partitions))


def _without_names(request: FetchRequest, fetch: FetchContext) -> FetchRequest:
    """Return a request that names each partition once, and none if its session knows them."""
    topics = [
        FetchRequestTopic(topic=topic, partitions=[partition for _, partition in named])
        for topic, named in groupby(fetch.named, key=lambda entry: entry[0].topic)
    ]
    # It waits with what it reads, and not with all it was sent (fault strangers-44, was: request).
    return FetchRequest(
        replica_id=request.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=request.session_epoch,
        topics=topics,
        rack_id=request.rack_id,
    )


def _refused(
    request: FetchRequest, fetch: FetchContext, context: RequestContext
) -> Collection[str]:
    """Return the topics that the sender may not read.

    A follower needs CLUSTER_ACTION for all of them, and no permission of any topic.
    """
    # A session has more partitions than its request names.
    if fetch.session is None:
        names = {topic_partition.topic for topic_partition, _ in fetch.named}
    else:
        names = {topic_partition.topic for topic_partition in fetch.session.partitions}

    if request.replica_id < 0:
        return refused_topics(context, Operation.READ, names)
    return () if authorize(context, Operation.CLUSTER_ACTION, CLUSTER) else names


def _refusals(context: FetchContext) -> list[Part]:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return [
        (topic_partition, partition_error(topic_partition.partition, code))
        for topic_partition, _ in context.refused_partitions
    ]


def _waits_under(reader: _Reader) -> tuple[Hashable, ...]:
    """Return the keys to wait under: the session, or without one each partition."""
    context = reader.context
    # A session waits as one: its marks say what has moved.
    if context.session is not None:
        return (context.session,)
    moved = END if reader.is_follower else WATERMARK
    return tuple((moved, topic_partition) for topic_partition, _ in reader.context.requested)


def _respond(reader: _Reader) -> Outcome:
    parts = _read(reader)
    if reader.context.refused:
        parts += _refusals(reader.context)
    if reader.old is None:
        return reader.context.build_response(parts, reader.has_more)
    return _convert(reader, reader.old, parts)


def _readable_bytes(
    reader: _Reader, topic_partition: TopicPartition, partition_request: FetchRequestPartition
) -> int | None:
    """Return how many bytes there are to read; None if there is an error to report at once."""
    try:
        partition = reader.replicas.partition(topic_partition)
        partition.require_leader(partition_request.current_leader_epoch)
        if _must_truncate(partition, partition_request):
            return None
    except ApiError:
        # A reader must hear at once of a new leader, or of another epoch.
        return None

    log = partition.log
    # An offset out of range has an error to report.
    if not log.log_start_offset <= partition_request.fetch_offset <= log.log_end_offset:
        return None
    # Nothing for this reader: it is at the end, or held back by its quota.
    offset = reader.offset_of(partition, partition_request)
    end = reader.end_of(partition)
    if offset >= end or reader.is_held_back(partition):
        return 0

    max_bytes = partition_request.partition_max_bytes
    try:
        return min(log.bytes_between(offset, end, max_bytes), max_bytes)
    except ApiError:
        # Reading meets the same error, and reports it.
        return None


def _must_truncate(partition: Partition, partition_request: FetchRequestPartition) -> bool:
    """Return whether the reader has other records than the log. Raises ApiError."""
    epoch = partition_request.last_fetched_epoch
    return (
        epoch >= 0 and partition.find_divergence(epoch, partition_request.fetch_offset) is not None
    )


def _read(reader: _Reader) -> list[Part]:
    left = reader.max_bytes
    is_first = True
    parts = []
    for topic_partition, partition_request in reader.context.requested:
        part = _read_partition(reader, topic_partition, partition_request, left, is_first)
        # Only the first records may exceed the limits. They count as they are on disk.
        size = getattr(part.records, "size", 0)
        is_first = is_first and not size
        left = max(0, left - size)
        parts.append((topic_partition, part))
    return parts


def _take_quota(reader: _Reader, topic_partition: TopicPartition, size: int) -> bool:
    """Spend quota on so many bytes of a partition; return whether the reader may have them."""
    partition = reader.replicas.partition(topic_partition)
    if not reader.is_throttled(partition):
        return True
    # A replica in the ISR is never held back, though it is counted.
    if reader.is_held_back(partition):
        return False
    reader.quota.record(size)
    return True


def _read_partition(
    reader: _Reader,
    topic_partition: TopicPartition,
    partition_request: FetchRequestPartition,
    left: int,
    is_first: bool,
) -> FetchResponsePartition:
    replicas = reader.replicas
    old = reader.old
    # A follower may ask before this broker's metadata shows the partition.
    state = reader.cache.partition_state(topic_partition)
    if state is None and topic_partition not in replicas.partitions:
        return partition_error(partition_request.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    try:
        partition = replicas.partition(topic_partition)
        offset = reader.offset_of(partition, partition_request)
        # A hard limit cuts the first batch afterwards. What nothing is left for is not converted
        # first, and then cut to nothing (fault strangers-111, was: old.hard_limits).
        cuts_first = old is not None and old.hard_limits and left > 0
        result = replicas.read(
            topic_partition,
            offset,
            min(partition_request.partition_max_bytes, left),
            min_one=is_first or cuts_first,
            current_leader_epoch=partition_request.current_leader_epoch,
            last_fetched_epoch=partition_request.last_fetched_epoch,
            replica_id=reader.request.replica_id,
            stable_only=reader.stable_only,
        )

        # A reader that does not know zstd gets nothing of a topic that is kept in it.
        is_too_old = reader.api_version < FIRST_VERSION_OF_ZSTD
        if is_too_old and partition.log.config.compression_type == "zstd":
            reason = f"{topic_partition} is kept in zstd"
            raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, reason)

        # Take quota for the bytes, and convert them for an old reader.
        file_range = result.range
        if file_range is not None and not _take_quota(reader, topic_partition, file_range.size):
            file_range = None
        records: Any = _EMPTY if file_range is None else file_range
        if old is not None and file_range is not None:
            records = convert_for_old_reader(
                file_range,
                partition.log.config,
                magic=old.magic,
                fetch_offset=offset,
                limit=min(partition_request.partition_max_bytes, left),
                hard=old.hard_limits,
            )
    except ApiError as error:
        return partition_error(partition_request.partition, error.code)

    diverging = NOT_DIVERGING
    if result.diverging_epoch is not None:
        epoch, end_offset = result.diverging_epoch
        diverging = FetchResponseEpochEndOffset(epoch=epoch, end_offset=end_offset)
    return FetchResponsePartition(
        partition_index=partition_request.partition,
        error_code=ErrorCode.NONE,
        high_watermark=result.high_watermark,
        last_stable_offset=result.last_stable_offset,
        log_start_offset=result.log_start_offset,
        aborted_transactions=_list_aborted(result),
        records=records,
        diverging_epoch=diverging,
    )


def _list_aborted(result: FetchedRange) -> list[FetchResponseAbortedTransaction] | None:
    if result.aborted is None:
        return None
    return [
        FetchResponseAbortedTransaction(
            producer_id=transaction.producer_id, first_offset=transaction.first_offset
        )
        for transaction in result.aborted
    ]


# ---- versions 0-3


def _old_reader(context: RequestContext, deferred: Deferred) -> _OldReader:
    version = context.api_version
    magic = 1 if version >= FIRST_VERSION_OF_FORMAT_1 else 0
    is_hard = version < FIRST_VERSION_OF_SOFT_LIMITS
    return _OldReader(magic, is_hard, deferred, owner_of(context))


def _convert(reader: _Reader, old: _OldReader, parts: list[Part]) -> Outcome:
    """Respond when the records that must be converted are, or have begun to be."""
    conversions = [part.records for _, part in parts if isinstance(part.records, Conversion)]
    if not conversions:
        return FetchResponse(responses=group_by_topic(parts))

    # Threads take their time, and others may lead meanwhile.
    epochs = {
        partition: partition.leader_epoch
        for topic_partition, _ in parts
        if (partition := reader.replicas.partitions.get(topic_partition)) is not None
    }
    respond = partial(_respond_converted, reader, epochs)

    # Small and uncompressed: not worth a thread.
    size = sum(conversion.source.size for conversion in conversions)
    if size <= AT_ONCE_BYTES and not any(conversion.is_compressed() for conversion in conversions):
        return respond(_convert_parts(parts, old, None))

    held_bytes = sum(conversion.held_bytes for conversion in conversions)

    def begin(is_late: bool) -> Outcome | None:
        hold = old.deferred.converted.hold(held_bytes, old.owner.client)
        if hold is not None:
            return old.deferred.respond_from_thread(
                partial(_convert_parts, parts, old, hold),
                CONVERSION_TIMEOUT_MS,
                lambda: error_response(reader.request, ErrorCode.REQUEST_TIMED_OUT),
                respond,
                old.owner,
                only_asks=True,
            )
        # Others hold too much for too long: this reader has nothing for now, and asks again.
        if is_late:
            return FetchResponse(responses=group_by_topic(_without_conversions(parts)))
        return None

    return begin(False) or Wait((old.deferred.converted,), CONVERSION_PAUSE_MS, begin)


@frozen
class _Converted:
    """The parts of a response for an old reader, and the stretches where it has nothing."""

    parts: list[Part]
    barren: Mapping[TopicPartition, tuple[int, int]]


def _convert_parts(parts: list[Part], old: _OldReader, hold: Hold | None) -> _Converted:
    """Convert one part at least, and no more when the time is up: the others are asked for again.

    A thread that one request keeps busy is no other reader's, nor a producer's.
    """
    converted = _without_conversions(parts)
    barren = {}
    # A reader asks in the same order each time, and the last parts would never have their turn
    # (fault strangers-118, was: 0).
    first = old.deferred.choose_first(len(parts))
    # On the loop no more is read than was converted there.
    led_bytes = 0 if hold is None else LED_BYTES
    until_s = old.deferred.monotonic_s() + CONVERSION_S
    for number in (*range(first, len(parts)), *range(first)):
        topic_partition, part = parts[number]
        records = part.records
        if not isinstance(records, Conversion):
            continue

        made = _converted(part, records, old.deferred.executor, hold)
        converted[number] = topic_partition, made
        # Nothing was cut off: there is nothing in it for the reader.
        if records.limit > 0 and made.records == b"" and not made.error_code:
            behind, read_bytes = records.offset_behind(part.high_watermark, led_bytes)
            # Of a thousand partitions each had as much (fault strangers-109).
            led_bytes -= read_bytes
            barren[topic_partition] = records.fetch_offset, behind
        # Or all is late, each time that it is asked for (fault strangers-110, was: False).
        is_over = old.deferred.monotonic_s() >= until_s
        if is_over:
            break
    return _Converted(converted, barren)


def _respond_converted(
    reader: _Reader, epochs: Mapping[Partition, int], converted: _Converted
) -> FetchResponse:
    """Respond, and note where the reader has nothing: it asks again, and is led over that.

    Markers of transactions are no messages, and it knows no other offsets. `epochs` are the leader
    epochs in which the partitions were read: in another one the offsets may have other records.
    """
    for topic_partition, (start, end) in converted.barren.items():
        partition = reader.replicas.partitions.get(topic_partition)
        if partition is None or not partition.is_leader:
            continue
        if epochs.get(partition) == partition.leader_epoch:
            partition.barren.add(start, end)
    return FetchResponse(responses=group_by_topic(converted.parts))


def _without_conversions(parts: list[Part]) -> list[Part]:
    """Return the parts with nothing for now where records would have to be converted."""
    return [(topic_partition, _without_conversion(part)) for topic_partition, part in parts]


def _without_conversion(part: FetchResponsePartition) -> FetchResponsePartition:
    if not isinstance(part.records, Conversion):
        return part
    return FetchResponsePartition(
        partition_index=part.partition_index,
        error_code=ErrorCode.NONE,
        high_watermark=part.high_watermark,
        records=_EMPTY,
    )


def _converted(
    part: FetchResponsePartition, conversion: Conversion, executor: Executor, hold: Hold | None
) -> FetchResponsePartition:
    try:
        records = conversion.begin(executor, hold)
    except (NoOlderForm, CompressionUnavailable):
        return partition_error(part.partition_index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    except CorruptRecord:
        return partition_error(part.partition_index, ErrorCode.CORRUPT_MESSAGE)
    return FetchResponsePartition(
        partition_index=part.partition_index,
        error_code=ErrorCode.NONE,
        high_watermark=part.high_watermark,
        records=records,
    )
