"""The last batches of each producer, so that a batch that is sent again is written once (KIP-98).

A producer with an id numbers its records, per partition: a batch carries the number of its first
record, and the next batch goes on where it ended. The leader takes the next batch in order and
refuses any other. It remembers the last five batches of each producer, as many as a client may have
in flight, and answers one of these as it did the first time. Followers, and a log that is loaded,
only take note, for a batch in a log was accepted once.

`check` looks, `update` notes, and between the two the batch is written. So nothing is noted of a
batch whose write failed (KAFKA-6683).

Two choices where releases of Kafka differ:

- A first batch of an unknown producer may have any number, as from 2.5 on (KIP-360). What a broker
  refused a moment ago keeps the second batch of a new producer from being that first one
  (`broker/replication/refused_batches.py`).
- A broker should not forget a producer that clients have not forgotten. So state outlives the
  records it came from (from 2.4 on, KAFKA-7190). It expires by the time of the producer's last
  append, not by the times in its records, which may be years ago.

A producer's first transactional batch opens its transaction, and a marker ends it. The marker may
raise the producer's epoch, and names the epoch of the coordinator that wrote it: a coordinator that
was replaced is fenced by it. Readers of committed data stop where the oldest transaction begins
that is open, or whose marker is not replicated yet.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import attrs

from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import BatchHeader

REMEMBERED_BATCHES = 5
"""Batches per producer: max.in.flight.requests.per.connection of an idempotent client."""
MAX_SEQUENCE = 2**31 - 1
"""The largest sequence number. 0 follows it."""
NONE = -1


class ProducedBatch(NamedTuple):
    """One batch of a producer that is in the log."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


class Marker(NamedTuple):
    """The end of a transaction in the log."""

    offset: int
    timestamp: int


NO_MARKER = Marker(NONE, NONE)


@attrs.define
class Producer:
    """One producer's state. Times are in ms.

    `last_append_ms` is the broker's clock, -1 if the producer wrote nothing since the broker
    started. `transaction_start` is the first offset of an open transaction, -1 without one.
    `marker` is where, or below where, its last marker is.
    """

    epoch: int
    batches: deque[ProducedBatch] = attrs.field(factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    last_timestamp: int = NONE
    coordinator_epoch: int = NONE
    transaction_start: int = NONE
    last_append_ms: int = attrs.field(default=NONE, eq=False)
    marker: Marker = attrs.field(default=NO_MARKER, eq=False)

    @property
    def next_sequence(self) -> int:
        """The number that the next batch must begin with."""
        return (self.batches[-1].last_sequence + 1) & MAX_SEQUENCE if self.batches else 0

    @property
    def last_active_ms(self) -> int:
        """Time of its last append; by its records, if that was before the start."""
        return self.last_timestamp if self.last_append_ms == NONE else self.last_append_ms

    def has_batch_from(self, offset: int) -> bool:
        """Return whether its last batch is at `offset` or above."""
        return bool(self.batches) and self.batches[-1].last_offset >= offset

    def truncate_to(self, offset: int) -> bool:
        """Undo what it wrote at `offset` and above. Returns False if it cannot: nothing changes.

        This needs a remembered batch below, which tells what the producer was then. A marker above
        may have ended a transaction that began below, or raised the epoch.
        """
        kept = [batch for batch in self.batches if batch.last_offset < offset]
        if not kept or self.marker.offset >= offset:
            return False

        self.batches = deque(kept, REMEMBERED_BATCHES)
        # The last timestamp is that of the last thing that is left.
        is_marker_last = self.marker.offset > kept[-1].last_offset
        self.last_timestamp = self.marker.timestamp if is_marker_last else kept[-1].timestamp
        # The transaction began with what is removed.
        if self.transaction_start >= offset:
            self.transaction_start = NONE
        return True

    def copy(self) -> Producer:
        """Return another one like it."""
        return attrs.evolve(self, batches=self.batches.copy())

    def duplicate_of(self, header: BatchHeader) -> ProducedBatch | None:
        """Find the remembered batch with the same sequence numbers."""
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
        # First and last number must both match: clients repeat whole batches.
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.offset_delta == delta:
                return batch
        return None


@attrs.define(eq=False)
class ProducerState:
    """The producers of one log, by id.

    While it `is_shared`, a snapshot has these producers that is still to be written.
    """

    producers: dict[int, Producer] = attrs.field(factory=dict)
    is_shared: bool = False
    # Producer id -> first offset of its open transaction, in the order of these offsets. The first
    # of a dict would be behind the places of all that have ended.
    _open: OrderedDict[int, int] = attrs.field(factory=OrderedDict, init=False)
    # First offset and marker of transactions that have ended, as a heap; the newest marker.
    _ended: list[tuple[int, int]] = attrs.field(factory=list, init=False)
    _newest_marker: int = attrs.field(default=NONE, init=False)

    def __attrs_post_init__(self) -> None:
        self._find_open()

    def _find_open(self) -> None:
        starts = [
            (producer.transaction_start, producer_id)
            for producer_id, producer in self.producers.items()
            if producer.transaction_start >= 0
        ]
        self._open = OrderedDict((producer_id, start) for start, producer_id in sorted(starts))

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return where the oldest transaction begins that is open or not known to be replicated.

        The end of a transaction counts once its marker is below `high_watermark`, for until then it
        may be truncated. None without any such transaction.
        """
        if not self._open and not self._ended:  # nearly always, and every fetch asks
            return None

        self.note_replicated(high_watermark)
        start = self.first_open_offset()
        if self._ended and (start is None or self._ended[0][0] < start):
            start, _ = self._ended[0]
        return start

    def first_open_offset(self, besides: int = NONE) -> int | None:
        """Return where the oldest open transaction begins, but for that of a producer."""
        return next(
            (start for producer_id, start in self._open.items() if producer_id != besides), None
        )

    def has_open(self, producer_id: int) -> bool:
        """Return whether a producer has an open transaction."""
        return producer_id in self._open

    def note_replicated(self, high_watermark: int) -> None:
        """Keep no more of the transactions that ended below `high_watermark`."""
        ended = self._ended
        if self._newest_marker < high_watermark:
            ended.clear()
        while ended and ended[0][1] < high_watermark:
            heappop(ended)

    def check(self, header: BatchHeader, *, epoch_only: bool = False) -> ProducedBatch | None:
        """Check whether a client's batch may be appended. Returns the batch that it repeats.

        With `epoch_only` the numbers may be any, and no batch repeats another. Raises ApiError
        INVALID_PRODUCER_EPOCH for a producer that another one has replaced,
        OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID where only a marker is known, and
        INVALID_TXN_STATE for a plain batch within an open transaction.
        """
        producer = self.producers.get(header.producer_id)
        # Any number is the first one: its batches before may be deleted, or another topic's, and
        # with several of them on their way a client could not go on (KIP-360).
        if producer is None:
            return None

        # In a new epoch numbers begin with 0. In this one they go on, or repeat.
        if header.producer_epoch != producer.epoch:
            _check_new_epoch(producer, header, epoch_only)
        elif not epoch_only and header.base_sequence != producer.next_sequence:
            duplicate = producer.duplicate_of(header)
            if duplicate is not None:
                return duplicate
            code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            if not producer.batches:  # only a transaction's marker is known
                code = ErrorCode.UNKNOWN_PRODUCER_ID
            raise _error(code, header, f"expected {producer.next_sequence}")

        if producer.transaction_start >= 0 and not header.is_transactional:
            raise _error(ErrorCode.INVALID_TXN_STATE, header, "its transaction is open")
        return None

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Check whether the marker of a coordinator may be appended, in a transaction or not.

        Raises ApiError INVALID_PRODUCER_EPOCH for the epoch of a producer that was replaced since,
        TRANSACTION_COORDINATOR_FENCED if a later coordinator has written a marker.
        """
        producer = self.producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise _fenced(producer, header)
        if coordinator_epoch < producer.coordinator_epoch:
            raise _error(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                header,
                f"a marker of coordinator epoch {coordinator_epoch} "
                f"after one of {producer.coordinator_epoch}",
            )

    def update(
        self,
        header: BatchHeader,
        last_offset: int,
        timestamp: int,
        now_ms: int = NONE,
        coordinator_epoch: int = NONE,
    ) -> None:
        """Note a batch that is in the log, whoever sent it.

        `timestamp` is its latest in ms, as it was written. `now_ms` is the clock, -1 while loading.
        `coordinator_epoch` is a marker's, -1 if it cannot be read.
        """
        # With another epoch the numbers begin again, so the old batches are of no use.
        producer = self.producers.get(header.producer_id)
        if producer is None:
            producer = self.producers[header.producer_id] = Producer(header.producer_epoch)
        elif self.is_shared:
            producer = self.producers[header.producer_id] = producer.copy()
        if header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        producer.last_timestamp = timestamp
        producer.last_append_ms = now_ms

        # A marker ends the transaction, and has no sequence numbers.
        if header.is_control:
            if producer.transaction_start >= 0:
                del self._open[header.producer_id]
                heappush(self._ended, (producer.transaction_start, last_offset))
                self._newest_marker = last_offset
            producer.transaction_start = NONE
            producer.marker = Marker(last_offset, timestamp)
            if coordinator_epoch != NONE:
                producer.coordinator_epoch = coordinator_epoch
            return

        # Remember the batch. The first one of a transaction opens it.
        delta = header.last_offset_delta
        last_sequence = (header.base_sequence + delta) & MAX_SEQUENCE
        producer.batches.append(ProducedBatch(last_sequence, last_offset, delta, timestamp))
        if producer.transaction_start < 0 and header.is_transactional:
            producer.transaction_start = last_offset - delta
            self._open[header.producer_id] = producer.transaction_start

    def replay(
        self,
        headers: Iterable[BatchHeader],
        end_transaction: Callable[[BatchHeader], int],
        now_ms: int = NONE,
    ) -> None:
        """Note batches from a leader, or from the log itself, in their order.

        `end_transaction` is called with each marker first, and returns its coordinator's epoch.
        """
        for header in headers:
            coordinator_epoch = end_transaction(header) if header.is_control else NONE
            last_offset, timestamp = header.last_offset, header.max_timestamp
            self.update(header, last_offset, timestamp, now_ms, coordinator_epoch)

    def truncate_to(self, offset: int) -> bool:
        """Undo what was written at `offset` and above: the log ends there now.

        Returns False if memory does not tell what some producer was. Then all must be read again.
        """
        is_told = all(
            producer.truncate_to(offset)
            for producer in self.producers.values()
            if producer.has_batch_from(offset) or producer.marker.offset >= offset
        )
        self._find_open()
        # A producer that is forgotten has no transaction to go on with.
        self._ended = [ended for ended in self._ended if ended[1] < offset]
        heapify(self._ended)
        return is_told

    def expire(self, now_ms: int, expiration_ms: int) -> Iterator[None]:
        """Forget producers that wrote nothing for so long, in steps of one producer.

        An open transaction keeps its producer. A producer with records from the future that wrote
        nothing since the start counts as active now, for that time may never come.
        """
        for producer_id, producer in list(self.producers.items()):
            yield
            if producer.last_append_ms == NONE and producer.last_timestamp > now_ms:
                producer.last_append_ms = now_ms

            # It may have written, or be gone, since the first step.
            is_silent = now_ms - producer.last_active_ms >= expiration_ms
            is_open = producer.transaction_start >= 0
            if is_silent and not is_open and self.producers.get(producer_id) is producer:
                del self.producers[producer_id]


def _check_new_epoch(producer: Producer, header: BatchHeader, epoch_only: bool) -> None:
    # An older epoch: another producer has taken the id over (fencing).
    if header.producer_epoch < producer.epoch:
        raise _fenced(producer, header)
    if header.base_sequence != 0 and not epoch_only:
        raise _error(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, header, "a new epoch begins with 0")


def _fenced(producer: Producer, header: BatchHeader) -> ApiError:
    return _error(ErrorCode.INVALID_PRODUCER_EPOCH, header, f"epoch {producer.epoch} came after it")


def _error(code: ErrorCode, header: BatchHeader, why: str) -> ApiError:
    return ApiError(
        code,
        f"producer {header.producer_id} epoch {header.producer_epoch} "
        f"sequence {header.base_sequence}: {why}",
    )
