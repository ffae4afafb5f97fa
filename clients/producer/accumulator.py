"""The records waiting to be sent, in batches, one queue per partition. Pure.

The caller passes the time and the results of batches; the accumulator says what can be sent and
what follows from a result. It is Kafka's RecordAccumulator, with two differences. A partition is
muted while one of its batches is in flight, so that a retry can neither overtake nor be overtaken
(Kafka ensures that only with one request in flight). And `buffer.memory` is charged with the size
of records, not of whole batches.

A batch is in exactly one place: in its queue, or in flight (drained, without a result yet).
`waiters` are objects through which the caller reports results; the accumulator does not use them.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from typing import Generic, Protocol, TypeVar, cast

import attrs

from clients.producer.alike_records import AlikeRecords
from clients.producer.config import ProducerConfig
from clients.producer.encoded_record import LEAST_OVERHEAD_BYTES, EncodedRecord, Header
from clients.producer.sequences import REASONS as OF_NUMBERS
from clients.producer.sequences import UNNUMBERED, Numbers
from clients.producer.shared_waiter import SharedWaiter
from protocol.bounds import MAX_PRODUCED_BYTES
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.records.batch import HEADER_BYTES, BatchBuilder, decode_batch
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition

W = TypeVar("W")
V = TypeVar("V", covariant=True)


class Waiters(Protocol[V]):
    """The waiters for the records of a batch, by their numbers."""

    def __getitem__(self, number: int, /) -> V: ...


Run = tuple[W, int, int]
"""A waiter, the number of consecutive records that it waits for, and their timestamp_ms."""


@attrs.define(eq=False)
class ProducerBatch(Generic[W]):
    """Records of one partition that will be sent as one record batch."""

    partition: TopicPartition
    serial: int
    """Number of the batch over all partitions; parts of a split batch have their parent's."""
    created_ms: int
    builder: BatchBuilder
    runs: list[Run[W]] = attrs.field(factory=list)
    """Who waits for the records, in their order."""
    charged_bytes: int = 0
    attempts: int = 0
    last_attempt_ms: int = 0
    last_error: ErrorCode = ErrorCode.NONE
    """Result of the last attempt."""
    last_silence: str = ""
    """Which broker did not respond to it, and why, where that is the result."""
    is_in_doubt: bool = False
    """True once an attempt may have been written, though no response says so."""
    encoded: bytes | None = None
    """The batch's bytes, set when it is first drained. The batch takes no records after that."""
    numbers: Numbers = UNNUMBERED
    """Numbers of an idempotent producer, set before the batch is encoded."""
    flags: int = 0
    """Attributes of the encoded batch: TRANSACTIONAL, or none."""
    expired: bool = False
    settled: bool = False
    """True if the waiters have their results."""

    @property
    def count(self) -> int:
        """The number of records."""
        return self.builder.count

    def seal(self) -> bytes:
        """Encode the batch, once; every attempt sends the same bytes."""
        if self.encoded is None:
            self.encoded = self.builder.build(**self.numbers._asdict(), flags=self.flags)
        return self.encoded

    @property
    def may_be_written(self) -> bool:
        """True if the log may have the batch, or come to have it, though it was not acknowledged.

        That is not so if it was never sent, or was refused at its first attempt.
        """
        if self.numbers == UNNUMBERED:
            return False
        error = self.last_error
        is_refused = error is not ErrorCode.NONE and not error.retriable
        return not (is_refused and self.attempts == 0 and error not in OF_NUMBERS)


class Verdict(Enum):
    """The meaning of a response for a batch."""

    DELIVERED = 0
    RETRY = 1
    SPLIT = 2
    FAILED = 3


@frozen
class Ready:
    """The partitions that can be sent now by leader, least recently served first."""

    nodes: dict[int, list[TopicPartition]]
    leaderless: frozenset[str]
    """Topics with records for a partition without a known leader."""
    next_check_ms: int
    """Until this much time has passed, nothing becomes ready without another event."""


@attrs.define(eq=False)
class Accumulator(Generic[W]):
    """The records that a producer has accepted and that are not acknowledged yet."""

    config: ProducerConfig
    codec: Codec

    # ---- what the sender may do
    buffered_bytes: int = attrs.field(init=False, default=0)
    hurrying: int = attrs.field(init=False, default=0)
    """Number of callers that wait for a flush or for room. Nothing lingers while there are any."""
    closed: bool = attrs.field(init=False, default=False)
    """True if nothing is accepted any more. What is queued does not linger."""
    is_open: bool = attrs.field(init=False, default=True)
    """True if records are accepted: always before the close, but for transactional producers."""

    # ---- where the batches are
    _serial: int = attrs.field(init=False, default=0)
    _queues: dict[TopicPartition, deque[ProducerBatch[W]]] = attrs.field(init=False, factory=dict)
    _in_flight: dict[TopicPartition, ProducerBatch[W]] = attrs.field(init=False, factory=dict)
    """The batches in flight by partition, one each; these partitions are muted."""

    def close(self) -> None:
        """Accept no more records."""
        self.closed = True
        self.is_open = False

    def join_batch(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        waiter: W,
        size: int,
    ) -> bool:
        """Add a record of at most `size` bytes to the last batch of its partition.

        Returns False if that has no room, or there is none: the record needs a new batch.
        """
        queue = self._queues.get(partition)
        if not queue:
            return False

        # A batch that was encoded for its first attempt takes no more records.
        batch = queue[-1]
        if batch.encoded is not None or not batch.builder.try_append(
            timestamp_ms, key, value, headers
        ):
            return False

        batch.runs.append((waiter, 1, timestamp_ms))
        batch.charged_bytes += size
        self.buffered_bytes += size
        return True

    def join_many(
        self,
        partition: TopicPartition,
        records: Sequence[EncodedRecord],
        waiters: Waiters[W],
        first: int,
    ) -> int:
        """Do the same with the record of number `first`, and with those behind it that are alike.

        These are of the same topic and name the same partition, or name none and have no key.
        Return the number of the first that is not, or for which the last batch, or `buffer.memory`,
        has no room.
        """
        queue = self._queues.get(partition)
        if not queue or queue[-1].encoded is not None:
            return first

        # As `join_batch` does, but looked up once for all.
        batch = queue[-1]
        try_append = batch.builder.try_append
        add_run = batch.runs.append
        topic, partition_id = records[first][:2]
        room = self.config.buffer_memory - self.buffered_bytes
        left = room
        number = first
        # Whoever adds a record alone that cannot be encoded hears why.
        with suppress(Exception):
            while number < len(records):
                record = records[number]
                its_topic, its_partition, _, key, value, headers, timestamp_ms, size = record
                if (
                    its_partition != partition_id
                    or (key is not None and its_partition is None)
                    or its_topic != topic
                    or size > left
                    or not try_append(timestamp_ms, key, value, headers)
                ):
                    break
                add_run((waiters[number], 1, timestamp_ms))
                left -= size
                number += 1

        batch.charged_bytes += room - left
        self.buffered_bytes += room - left
        return number

    def join_alike(
        self, partition: TopicPartition, records: AlikeRecords, waiter: W, first: int
    ) -> int:
        """Do the same with records that are alike, from number `first` on, in one step.

        `waiter` takes the results of all that join the batch.
        """
        queue = self._queues.get(partition)
        if not queue or queue[-1].encoded is not None:
            return first

        # The end of those for which there is room, in memory and, at most, in the batch.
        builder = queue[-1].builder
        buffer_room = self.config.buffer_memory - self.buffered_bytes
        batch_room = builder.max_bytes - builder.size_estimate
        end = min(
            records.end_within(first, buffer_room, records.overhead_bytes),
            records.end_within(first, batch_room, LEAST_OVERHEAD_BYTES),
        )

        keys = None if records.keys is None else records.keys[first:end]
        values = records.values[first:end]
        try:
            added = builder.append_many(records.timestamp_ms, keys, values, records.headers)
        except Exception:
            # Whoever adds the first of them alone hears why they cannot be encoded.
            return first

        if added:
            queue[-1].runs.append((waiter, added, records.timestamp_ms))
            size = records.size_of(first, first + added)
            queue[-1].charged_bytes += size
            self.buffered_bytes += size
        return first + added

    def open_batch(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        waiter: W,
        size: int,
        monotonic_ms: int,
    ) -> None:
        """Add a record to a new batch, which takes it whatever its size."""
        batch = self._new_batch(partition, self._serial + 1, monotonic_ms)

        # Queue it only afterwards: a record that cannot be encoded leaves no empty batch.
        accepted = batch.builder.try_append(timestamp_ms, key, value, headers)
        assert accepted
        batch.runs.append((waiter, 1, timestamp_ms))
        batch.charged_bytes = size
        self._put_last(batch)

    def append_batch(
        self, partition: TopicPartition, builder: BatchBuilder, waiter: W, monotonic_ms: int
    ) -> None:
        """Queue records that the caller has encoded, as one batch; all share one waiter."""
        assert builder.count

        batch: ProducerBatch[W] = ProducerBatch(
            partition, self._serial + 1, monotonic_ms, builder, last_attempt_ms=monotonic_ms
        )
        batch.runs.append((waiter, builder.count, builder.base_timestamp_ms))
        batch.charged_bytes = builder.size_estimate
        self._put_last(batch)

    def ready(self, monotonic_ms: int, leader_of: Callable[[TopicPartition], int | None]) -> Ready:
        """Find the leaders that something can be sent to.

        That is a full batch, or one that has lingered. While callers wait for room or a flush, and
        after the close, it is any batch. Such a leader gets the batches of its other partitions in
        the same request.
        """
        is_hurried = self.closed or self.hurrying > 0
        drainable: dict[int, list[TopicPartition]] = {}
        ready: set[int] = set()
        leaderless: set[str] = set()
        next_check_ms = self.config.delivery_timeout_ms

        # In the order of `drain`: the partition that was served last is at the end.
        for partition, queue in self._queues.items():
            if partition in self._in_flight:
                continue

            leader = leader_of(partition)
            if leader is None:
                leaderless.add(partition.topic)
                continue

            # Every batch here is wanted at its expiry, and at the end of its backoff or linger.
            batch = queue[0]
            expires_in_ms = batch.created_ms + self.config.delivery_timeout_ms - monotonic_ms
            next_check_ms = min(next_check_ms, expires_in_ms)

            waited_ms = monotonic_ms - batch.last_attempt_ms
            if batch.attempts and waited_ms < self.config.retry_backoff_ms:
                next_check_ms = min(next_check_ms, self.config.retry_backoff_ms - waited_ms)
                continue

            drainable.setdefault(leader, []).append(partition)

            # What was sent before, or has others behind it, does not linger.
            if is_hurried or batch.attempts or len(queue) > 1 or self._is_due(batch, waited_ms):
                ready.add(leader)
            else:
                next_check_ms = min(next_check_ms, self.config.linger_ms - waited_ms)

        nodes = {node: drainable[node] for node in drainable if node in ready}
        return Ready(nodes, frozenset(leaderless), max(next_check_ms, 0))

    def drain(
        self, partitions: Iterable[TopicPartition], monotonic_ms: int
    ) -> list[ProducerBatch[W]]:
        """Take the first batch of each partition, up to `max.request.size`, but at least one.

        The batches are in flight and their partitions muted until `finish`, `retry` or `split`.
        The partitions queue up behind all others for the next request.
        """
        taken: list[ProducerBatch[W]] = []
        size = 0

        for partition in partitions:
            queue = self._queues[partition]
            size += queue[0].builder.size_estimate
            if taken and size > self.config.max_request_size:
                break

            batch = queue.popleft()
            batch.last_attempt_ms = monotonic_ms
            self._in_flight[partition] = batch
            taken.append(batch)

            # The partition goes behind the others, so that none starves.
            del self._queues[partition]
            if queue:
                self._queues[partition] = queue
        return taken

    def finish(self, batch: ProducerBatch[W]) -> None:
        """Remove a batch that was acknowledged or given up, and whose waiters have their result."""
        # A batch that ends in its queue leaves the one in flight where it is.
        if self._in_flight.get(batch.partition) is batch:
            del self._in_flight[batch.partition]
        self.buffered_bytes -= batch.charged_bytes
        batch.charged_bytes = 0

    def retry(self, batch: ProducerBatch[W]) -> None:
        """Put the batch back at the front of its queue, with a backoff."""
        assert self._in_flight[batch.partition] is batch
        del self._in_flight[batch.partition]
        batch.attempts += 1
        self._put_first(batch)

    def split(self, batch: ProducerBatch[W]) -> None:
        """Put the records back as batches of at most `batch.size`, or of half as many records.

        This is not an attempt, and the parts keep the time of creation.
        """
        assert self._in_flight[batch.partition] is batch
        del self._in_flight[batch.partition]
        parts: list[ProducerBatch[W]] = []
        # The bytes alone hold the records: the builder has encoded them as they came.
        records = decode_batch(batch.seal())
        most = (len(records) + 1) // 2

        for record, waiter in zip(records, _waiters(batch.runs), strict=True):
            fields = (record.timestamp_ms, record.key, record.value, record.headers)
            part = parts[-1] if parts else None

            # Halves at most, or less if the builder is full: the next split must be smaller again.
            if part is None or part.count >= most or not part.builder.try_append(*fields):
                part = self._new_batch(batch.partition, batch.serial, batch.created_ms)
                part.last_attempt_ms = batch.last_attempt_ms
                part.is_in_doubt = batch.is_in_doubt
                part.builder.try_append(*fields)
                parts.append(part)
            part.runs.append((waiter, 1, record.timestamp_ms))
            # Equal shares of the charge; what rounding loses is free at once.
            part.charged_bytes += batch.charged_bytes // len(records)

        # The parts take the place of the batch, in order, before later records.
        self.buffered_bytes -= batch.charged_bytes
        for part in reversed(parts):
            self.buffered_bytes += part.charged_bytes
            self._put_first(part)

    def expire(self, monotonic_ms: int) -> list[ProducerBatch[W]]:
        """Give up batches older than `delivery.timeout.ms`; the caller reports that to the waiters.

        A batch in flight stays in flight, and its partition muted, until its request ends: it may
        have been appended, and later batches must not overtake it.
        """
        before_ms = monotonic_ms - self.config.delivery_timeout_ms
        expired = []

        # A batch in flight stays there: its response may still come.
        for batch in self._in_flight.values():
            if batch.created_ms <= before_ms and not batch.expired:
                batch.expired = True
                expired.append(batch)

        # The oldest batch of a queue is its first.
        for partition, queue in list(self._queues.items()):
            while queue and queue[0].created_ms <= before_ms:
                batch = queue.popleft()
                batch.expired = True
                self.finish(batch)
                expired.append(batch)
            if not queue:
                del self._queues[partition]

        return expired

    def put_off(self, stall_ms: int, monotonic_ms: int) -> None:
        """Leave a stall of the process out of the age of each batch: nobody could have sent it."""
        for batch in self._incomplete():
            batch.created_ms = min(batch.created_ms + stall_ms, monotonic_ms)

    def abort_queued(self) -> list[ProducerBatch[W]]:
        """Give up all batches that are not in flight; the caller reports that to the waiters."""
        batches = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()

        for batch in batches:
            self.finish(batch)

        return batches

    def abort_all(self) -> list[ProducerBatch[W]]:
        """Give up all batches, for a close that does not wait; the caller tells the waiters."""
        batches = list(self._incomplete())
        self._queues.clear()

        for batch in batches:
            self.finish(batch)

        return batches

    @property
    def queued_partitions(self) -> Collection[TopicPartition]:
        """Partitions with batches that are not in flight."""
        return self._queues.keys()

    @property
    def is_idle(self) -> bool:
        """True if no batch is queued or in flight."""
        return not self._queues and not self._in_flight

    @property
    def last_serial(self) -> int:
        """Serial of the newest batch."""
        return self._serial

    def is_done_through(self, through_serial: int) -> bool:
        """Return whether all batches up to that serial were acknowledged or given up."""
        # The request of one that has expired may last for days, as a quota wants
        # (fault strangers-24, was: self._incomplete()).
        going_on = (batch for batch in self._incomplete() if not batch.expired)
        return not any(batch.serial <= through_serial for batch in going_on)

    def _incomplete(self) -> Iterator[ProducerBatch[W]]:
        for queue in self._queues.values():
            yield from queue
        yield from self._in_flight.values()

    def _is_due(self, batch: ProducerBatch[W], waited_ms: int) -> bool:
        is_full = batch.builder.size_estimate >= self.config.batch_size
        return is_full or waited_ms >= self.config.linger_ms

    def _new_batch(
        self, partition: TopicPartition, serial: int, created_ms: int
    ) -> ProducerBatch[W]:
        compressed = self.config.compressed_topics
        codec = self.codec if not compressed or partition.topic in compressed else Codec.NONE
        # At least a header, and at most what brokers take.
        batch_size = min(max(self.config.batch_size, HEADER_BYTES), MAX_PRODUCED_BYTES)

        builder = BatchBuilder(codec, batch_size)
        return ProducerBatch(partition, serial, created_ms, builder, last_attempt_ms=created_ms)

    def _put_last(self, batch: ProducerBatch[W]) -> None:
        self._serial = batch.serial
        self._queues.setdefault(batch.partition, deque()).append(batch)
        self.buffered_bytes += batch.charged_bytes

    def _put_first(self, batch: ProducerBatch[W]) -> None:
        self._queues.setdefault(batch.partition, deque()).appendleft(batch)


def judge(
    batch: ProducerBatch[W], error: ErrorCode, monotonic_ms: int, config: ProducerConfig
) -> Verdict:
    """Return the meaning of the response `error` for a batch in flight."""
    # A duplicate is in the log: an earlier attempt was written, and its response lost.
    if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DELIVERED

    # An expired batch is not sent again: its futures have failed already.
    is_alive = not batch.expired and monotonic_ms < batch.created_ms + config.delivery_timeout_ms

    # One record cannot be split; too large alone, it fails.
    if error is ErrorCode.MESSAGE_TOO_LARGE and is_alive and batch.count > 1:
        return Verdict.SPLIT
    if error.retriable and is_alive and batch.attempts < config.retries:
        return Verdict.RETRY
    return Verdict.FAILED


def _waiters(runs: Iterable[Run[W]]) -> Iterator[W]:
    """Yield what waits for each record."""
    for waiter, count, _ in runs:
        if isinstance(waiter, SharedWaiter):
            yield from cast(Iterable[W], waiter.parts(count))
        else:
            yield waiter
