"""The appends of one led partition: entries that wait, and those in flight.

One batch is in flight at a time. Entries that arrive meanwhile wait and share the next batch: one
append, one checksum, one round of replication for all of them.

    add -> waiting -> next_batch -> in flight -> appended, replicated or refused -> take

An entry carries `then`, the event that is decided when it has ended. An entry is never deleted: one
that timed out is replayed all the same if it is replicated later, because the log is the truth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from groups.runtime.effects import Append
from groups.runtime.shard import EncodedRecord
from protocol.records.batch import encode_batch
from protocol.records.batch_header import HEADER_BYTES, TRANSACTIONAL
from protocol.records.compression import Codec
from protocol.records.control_record import encode_marker

if TYPE_CHECKING:
    from asyncio import TimerHandle

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Beyond this size of waiting entries no append is accepted: the partition is not replicated."""
RECORD_OVERHEAD = 21
"""Largest size of the lengths, deltas and attributes beside a record's key and value."""


@attrs.define(eq=False)
class Entry:
    """An Append, with its records encoded.

    `has_timed_out`: its `then` is decided already. `has_ended`: it has left the journal.
    `timer` rings when its time is up; None unless it has to wait for the log.
    """

    append: Append
    encoded: Sequence[EncodedRecord]
    size: int
    has_timed_out: bool = False
    has_ended: bool = False
    timer: TimerHandle | None = None

    @property
    def then(self) -> Any:
        """Return the event that is decided when the entry ended."""
        return self.append.then

    def may_share(self, other: Entry) -> bool:
        """Return whether both may be in one batch: a batch has one producer, and one acks."""
        mine = self.append
        theirs = other.append
        return mine.writer == theirs.writer and mine.acks == theirs.acks and not self.is_marker

    @property
    def is_marker(self) -> bool:
        """Return whether it ends a transaction. A marker is a batch by itself."""
        return self.append.writer is not None and self.append.writer.ends is not None


@attrs.define(eq=False)
class Journal:
    """The queue of one partition, first in, first out."""

    codec: Codec = Codec.NONE
    _waiting: deque[Entry] = attrs.field(factory=deque)
    _waiting_bytes: int = 0
    _in_flight: list[Entry] = attrs.field(factory=list)

    @property
    def waiting(self) -> int:
        """Return how many entries wait."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the entries that wait, rounded up."""
        return self._waiting_bytes

    @property
    def is_full(self) -> bool:
        """Return whether nothing more may be added until a batch ends."""
        return self._waiting_bytes >= MAX_WAITING_BYTES

    @property
    def has_in_flight(self) -> bool:
        """Return whether a batch is in flight."""
        return bool(self._in_flight)

    @property
    def acks(self) -> int:
        """Return the acks of the batch in flight."""
        return self._in_flight[0].append.acks

    def unfinished(self) -> Iterator[Entry]:
        """Go through the entries in flight, then those that wait."""
        yield from self._in_flight
        yield from self._waiting

    def add(self, append: Append, encoded: Sequence[EncodedRecord]) -> Entry:
        """Queue an append with at least one record, or a marker."""
        # Rather too large: every record counts with the largest overhead.
        size = RECORD_OVERHEAD * len(encoded)
        for key, value in encoded:
            size += len(key) + len(value or b"")
        entry = Entry(append, encoded, size)
        assert encoded or entry.is_marker

        self._waiting.append(entry)
        self._waiting_bytes += size
        return entry

    def next_batch(self, max_bytes: int, now_ms: int) -> bytes:
        """Put entries that wait in flight and return them as one batch.

        Call this when entries wait and nothing is in flight. Entries share a batch as long as it
        stays within `max_bytes`. An entry that is larger by itself goes alone, so that only it is
        refused.
        """
        assert self._waiting
        assert not self._in_flight

        first = self._waiting[0]
        room = max_bytes - HEADER_BYTES

        # The first goes in any case, the others while they fit.
        while self._waiting and (not self._in_flight or self._fits(first, room)):
            entry = self._waiting.popleft()
            self._in_flight.append(entry)
            self._waiting_bytes -= entry.size
            room -= entry.size

        return self._encode(first, now_ms)

    def _fits(self, first: Entry, room: int) -> bool:
        return self._waiting[0].size <= room and self._waiting[0].may_share(first)

    def _encode(self, first: Entry, now_ms: int) -> bytes:
        writer = first.append.writer
        # A marker is a control batch of its own.
        if writer is not None and writer.ends is not None:
            return encode_marker(
                writer.ends,
                producer_id=writer.producer_id,
                producer_epoch=writer.producer_epoch,
                coordinator_epoch=writer.coordinator_epoch,
                timestamp_ms=now_ms,
            )

        # Every record gets a CreateTime, the time of writing (KAFKA-4861).
        rows = [
            (now_ms, key, value, ()) for entry in self._in_flight for key, value in entry.encoded
        ]
        if writer is None:
            return encode_batch(rows, codec=self.codec)
        return encode_batch(
            rows,
            codec=self.codec,
            producer_id=writer.producer_id,
            producer_epoch=writer.producer_epoch,
            # Coordinators number nothing for producers; Kafka's write 0 too.
            base_sequence=0,
            flags=TRANSACTIONAL if writer.is_transactional else 0,
        )

    def put_back(self) -> None:
        """Return the entries of the batch in flight, which was not written, to the head."""
        # From the last on, so that they are in order again.
        for entry in reversed(self.take()):
            self._waiting.appendleft(entry)
            self._waiting_bytes += entry.size

    def take(self) -> list[Entry]:
        """Remove and return the entries of the batch in flight, which has ended."""
        ended = self._in_flight
        self._in_flight = []
        return ended

    def take_all(self) -> list[Entry]:
        """Remove and return every entry: another broker leads the partition now."""
        ended = [*self.take(), *self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        return ended
