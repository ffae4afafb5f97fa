"""Records waiting to be sent, in batches, one queue per partition. Pure: told the time, it says
what is ready; told what became of a batch, it says what follows.

Kafka's RecordAccumulator, with two differences. A partition is muted while a batch of it is in
flight, so that a retry can never overtake or be overtaken (Kafka does so only with one request in
flight). And `buffer.memory` is charged with what records take, not with whole batches.

A batch is in exactly one place: in its queue, or in flight (drained and not yet answered).
`waiters` are whatever the caller wants to be told through; nothing here looks at them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Generic, TypeVar

import attrs

from clients.config import ProducerConfig
from clients.producer.sequences import UNNUMBERED, Numbers
from protocol.bounds import MAX_PRODUCED_BYTES
from protocol.errors import ErrorCode
from protocol.records.batch import HEADER_BYTES, BatchBuilder, decode_batch
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition

W = TypeVar("W")
Header = tuple[str, bytes | None]

RECORD_OVERHEAD_BYTES = 26
"""Most that a record adds to its key and value: lengths, deltas, attributes, header count."""


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """Upper bound of what a record takes in a batch, uncompressed."""
    size = RECORD_OVERHEAD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += 10 + 4 * len(name) + (len(content) if content else 0)
    return size


@attrs.define(eq=False)
class ProducerBatch(Generic[W]):
    """Records of one partition that will be sent as one record batch."""

    partition: TopicPartition
    serial: int
    """Order of creation over all partitions; the parts of a split batch share their parent's."""
    created_ms: int
    builder: BatchBuilder
    waiters: list[W] = attrs.field(factory=list)
    timestamps: list[int] = attrs.field(factory=list)
    charged_bytes: int = 0
    attempts: int = 0
    last_attempt_ms: int = 0
    last_error: ErrorCode = ErrorCode.NONE
    """What became of the last attempt."""
    encoded: bytes | None = None
    """Set when first drained; from then on the batch takes no more records."""
    numbers: Numbers = UNNUMBERED
    """Given before it is encoded, with idempotence."""
    expired: bool = False

    def seal(self) -> bytes:
        """The encoded batch; the same bytes on every attempt."""
        if self.encoded is None:
            self.encoded = self.builder.build(**self.numbers._asdict())
        return self.encoded


class Appended(Enum):
    """What became of a record."""

    REFUSED = 0
    """It would open a batch, and the caller asked not to."""
    JOINED = 1
    OPENED = 2


class Verdict(Enum):
    """What an answer to a batch means."""

    DELIVERED = 0
    RETRY = 1
    SPLIT = 2
    FAILED = 3


@attrs.frozen
class Ready:
    """What can be sent now: per leader the partitions to drain, the longest unserved first."""

    nodes: dict[int, list[TopicPartition]]
    leaderless: frozenset[str]
    """Topics that have records for a partition whose leader is not known."""
    next_check_ms: int
    """Nothing more becomes ready before this much time has passed, unless something happens."""


@attrs.define(eq=False)
class Accumulator(Generic[W]):
    """All records that a producer has accepted and not yet seen acknowledged."""

    config: ProducerConfig
    codec: Codec
    buffered_bytes: int = attrs.field(init=False, default=0)
    hurrying: int = attrs.field(init=False, default=0)
    """Callers who wait for a flush or for room; with any, or when closed, nothing lingers."""
    closed: bool = attrs.field(init=False, default=False)
    _serial: int = attrs.field(init=False, default=0)
    _queues: dict[TopicPartition, deque[ProducerBatch[W]]] = attrs.field(init=False, factory=dict)
    _in_flight: dict[TopicPartition, ProducerBatch[W]] = attrs.field(init=False, factory=dict)
    """Also the muted partitions: one batch of each at a time."""

    def append(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        waiter: W,
        size: int,
        monotonic_ms: int,
        may_open: bool = True,
    ) -> Appended:
        """Add a record of at most `size` bytes to the last batch of its partition, or to a new one.

        A batch takes its first record whatever the size.
        """
        appended = Appended.JOINED
        queue = self._queues.get(partition)
        batch = queue[-1] if queue else None
        if (
            batch is None
            or batch.encoded is not None
            or not batch.builder.try_append(timestamp_ms, key, value, headers)
        ):
            if not may_open:
                return Appended.REFUSED
            batch = self._new_batch(partition, self._serial + 1, monotonic_ms)
            # Queued only now: a record that cannot be encoded must not leave an empty batch.
            accepted = batch.builder.try_append(timestamp_ms, key, value, headers)
            assert accepted
            self._serial = batch.serial
            self._queues.setdefault(partition, deque()).append(batch)
            appended = Appended.OPENED
        batch.waiters.append(waiter)
        batch.timestamps.append(timestamp_ms)
        batch.charged_bytes += size
        self.buffered_bytes += size
        return appended

    def ready(self, monotonic_ms: int, leader_of: Callable[[TopicPartition], int | None]) -> Ready:
        """Say which leaders have something to send: a full batch, one that has lingered, or all
        of them when records wait for memory, for a flush or for the close.

        A leader that has one such partition is given its other batches too: they ride along.
        """
        hurry = self.closed or self.hurrying > 0
        drainable: dict[int, list[TopicPartition]] = {}
        ready: set[int] = set()
        leaderless: set[str] = set()
        next_check_ms = self.config.delivery_timeout_ms
        for partition, queue in self._queues.items():
            if partition in self._in_flight:
                continue
            leader = leader_of(partition)
            if leader is None:
                leaderless.add(partition.topic)
                continue
            batch = queue[0]
            expires_in_ms = batch.created_ms + self.config.delivery_timeout_ms - monotonic_ms
            next_check_ms = min(next_check_ms, expires_in_ms)
            waited_ms = monotonic_ms - batch.last_attempt_ms
            if batch.attempts and waited_ms < self.config.retry_backoff_ms:
                next_check_ms = min(next_check_ms, self.config.retry_backoff_ms - waited_ms)
                continue
            drainable.setdefault(leader, []).append(partition)
            if hurry or batch.attempts or len(queue) > 1 or self._due(batch, waited_ms):
                ready.add(leader)
            else:
                next_check_ms = min(next_check_ms, self.config.linger_ms - waited_ms)
        nodes = {node: drainable[node] for node in drainable if node in ready}
        return Ready(nodes, frozenset(leaderless), max(next_check_ms, 0))

    def drain(
        self, partitions: Iterable[TopicPartition], monotonic_ms: int
    ) -> list[ProducerBatch[W]]:
        """Take the first batch of each partition, up to `max.request.size`, at least one.

        What was taken is in flight and its partition muted, until `finish`, `retry` or `split`.
        A partition that was served queues up behind the others for the next request.
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
            del self._queues[partition]
            if queue:
                self._queues[partition] = queue
        return taken

    def finish(self, batch: ProducerBatch[W]) -> None:
        """The batch was acknowledged or given up, and its waiters told."""
        if self._in_flight.get(batch.partition) is batch:
            del self._in_flight[batch.partition]
        self.buffered_bytes -= batch.charged_bytes
        batch.charged_bytes = 0

    def retry(self, batch: ProducerBatch[W]) -> None:
        """Put the batch back in front of its queue; it will back off first."""
        assert self._in_flight[batch.partition] is batch
        del self._in_flight[batch.partition]
        batch.attempts += 1
        self._put_first(batch)

    def split(self, batch: ProducerBatch[W]) -> None:
        """Put the records back as batches of at most `batch.size`, or of half as many records.

        Not an attempt, and no new life: the parts keep the time of creation.
        """
        assert self._in_flight[batch.partition] is batch
        del self._in_flight[batch.partition]
        parts: list[ProducerBatch[W]] = []
        records = decode_batch(batch.seal())
        most = (len(records) + 1) // 2
        for index, record in enumerate(records):
            fields = (record.timestamp_ms, record.key, record.value, record.headers)
            part = parts[-1] if parts else None
            if part is None or len(part.waiters) >= most or not part.builder.try_append(*fields):
                part = self._new_batch(batch.partition, batch.serial, batch.created_ms)
                part.last_attempt_ms = batch.last_attempt_ms
                part.builder.try_append(*fields)
                parts.append(part)
            part.waiters.append(batch.waiters[index])
            part.timestamps.append(record.timestamp_ms)
            part.charged_bytes += batch.charged_bytes // len(records)
        self.buffered_bytes -= batch.charged_bytes
        for part in reversed(parts):
            self.buffered_bytes += part.charged_bytes
            self._put_first(part)

    def expire(self, monotonic_ms: int) -> list[ProducerBatch[W]]:
        """Give up what is older than `delivery.timeout.ms`; the caller tells the waiters.

        A batch in flight is given up too, but stays in flight (its partition muted) until its
        request ends: whether it was appended is not known yet, and what follows must not overtake.
        """
        before_ms = monotonic_ms - self.config.delivery_timeout_ms
        given_up = []
        for batch in self._in_flight.values():
            if batch.created_ms <= before_ms and not batch.expired:
                batch.expired = True
                given_up.append(batch)
        for partition, queue in list(self._queues.items()):
            while queue and queue[0].created_ms <= before_ms:
                batch = queue.popleft()
                batch.expired = True
                self.finish(batch)
                given_up.append(batch)
            if not queue:
                del self._queues[partition]
        return given_up

    def give_up_queued(self) -> list[ProducerBatch[W]]:
        """Give up all that is not in flight; the caller tells the waiters."""
        batches = [batch for queue in self._queues.values() for batch in queue]
        self._queues.clear()
        for batch in batches:
            self.finish(batch)
        return batches

    def abandon(self) -> list[ProducerBatch[W]]:
        """Give everything up, for a close that does not wait; the caller tells the waiters."""
        batches = list(self._incomplete())
        self._queues.clear()
        for batch in batches:
            self.finish(batch)
        return batches

    @property
    def last_serial(self) -> int:
        """Serial of the newest batch."""
        return self._serial

    def all_done(self, through_serial: int) -> bool:
        """Whether every batch made up to that serial has been acknowledged or given up."""
        return not any(batch.serial <= through_serial for batch in self._incomplete())

    def _incomplete(self) -> Iterator[ProducerBatch[W]]:
        for queue in self._queues.values():
            yield from queue
        yield from self._in_flight.values()

    def _due(self, batch: ProducerBatch[W], waited_ms: int) -> bool:
        full = batch.builder.size_estimate >= self.config.batch_size
        return full or waited_ms >= self.config.linger_ms

    def _new_batch(
        self, partition: TopicPartition, serial: int, created_ms: int
    ) -> ProducerBatch[W]:
        compressed = self.config.compressed_topics
        codec = self.codec if not compressed or partition.topic in compressed else Codec.NONE
        batch_size = min(max(self.config.batch_size, HEADER_BYTES), MAX_PRODUCED_BYTES)
        builder = BatchBuilder(codec, batch_size)
        return ProducerBatch(partition, serial, created_ms, builder, last_attempt_ms=created_ms)

    def _put_first(self, batch: ProducerBatch[W]) -> None:
        self._queues.setdefault(batch.partition, deque()).appendleft(batch)


def verdict(
    batch: ProducerBatch[W], error: ErrorCode, monotonic_ms: int, config: ProducerConfig
) -> Verdict:
    """Say what the answer `error` to a batch in flight means for it."""
    if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
        return Verdict.DELIVERED
    alive = not batch.expired and monotonic_ms < batch.created_ms + config.delivery_timeout_ms
    if error is ErrorCode.MESSAGE_TOO_LARGE and alive and len(batch.waiters) > 1:
        return Verdict.SPLIT
    if error.retriable and alive and batch.attempts < config.retries:
        return Verdict.RETRY
    return Verdict.FAILED
