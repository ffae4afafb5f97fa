"""What one partition of `__consumer_offsets` is to write: entries waiting, and those in flight.

One batch is in flight at a time. What arrives meanwhile waits and shares the next batch: one
append, one checksum, one round of replication for all of it.

    add -> waiting -> next_batch -> in flight -> appended, replicated or refused -> take

An entry carries `then`, whatever its owner wants to hear when it ended. An entry is never dropped:
one whose asker was told that time is up is replayed all the same if it is replicated later,
because the log is the truth.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

import attrs

from offsets.records import OFFSET_VALUE_VERSION, Key, Record, encode_key, encode_value
from protocol.records.batch import encode_batch
from protocol.records.batch_header import HEADER_BYTES
from protocol.records.compression import Codec

T = TypeVar("T")

MAX_WAITING_BYTES = 64 * 1024 * 1024
"""Beyond this a partition that cannot be replicated accepts no more."""
RECORD_OVERHEAD = 21
"""The most that lengths, deltas and attributes add to a record's key and value."""


@attrs.define(eq=False)
class Entry(Generic[T]):
    """Records that stand or fall together, as bytes too, and what to say when they did."""

    records: Sequence[Record]
    then: T
    encoded: list[tuple[bytes, bytes | None]]
    size: int


@attrs.define(eq=False)
class Journal(Generic[T]):
    """The queue of one partition, first in, first out. `value_version` is that of offsets."""

    codec: Codec = Codec.NONE
    value_version: int = OFFSET_VALUE_VERSION
    _waiting: deque[Entry[T]] = attrs.field(factory=deque)
    _waiting_bytes: int = 0
    _in_flight: list[Entry[T]] = attrs.field(factory=list)

    @property
    def waiting(self) -> int:
        """How many entries wait."""
        return len(self._waiting)

    @property
    def waiting_bytes(self) -> int:
        """About how many bytes they come to."""
        return self._waiting_bytes

    @property
    def full(self) -> bool:
        """Whether nothing more may be added until a batch ends."""
        return self._waiting_bytes >= MAX_WAITING_BYTES

    def under_way(self) -> Iterator[Entry[T]]:
        """What is in flight or waits, in order."""
        yield from self._in_flight
        yield from self._waiting

    def keys_under_way(self) -> Iterator[Key]:
        """Of all its records."""
        for entry in self.under_way():
            for key, _ in entry.records:
                yield key

    def add(self, records: Sequence[Record], then: T) -> None:
        """Queue records, of which there is at least one."""
        assert records
        version = self.value_version
        encoded = [(encode_key(key), encode_value(value, version)) for key, value in records]
        size = sum(len(key) + len(value or b"") for key, value in encoded)
        size += RECORD_OVERHEAD * len(encoded)
        self._waiting.append(Entry(records, then, encoded, size))
        self._waiting_bytes += size

    def next_batch(self, max_bytes: int, now_ms: int) -> bytes:
        """Put what waits in flight and return it encoded. Something waits, nothing is in flight.

        Entries share a batch as long as it stays within `max_bytes`. One that is larger alone
        goes alone, so that its refusal is its own.
        """
        assert self._waiting
        assert not self._in_flight
        room = max_bytes - HEADER_BYTES
        while self._waiting and (not self._in_flight or self._waiting[0].size <= room):
            entry = self._waiting.popleft()
            self._in_flight.append(entry)
            self._waiting_bytes -= entry.size
            room -= entry.size
        rows = [
            (now_ms, key, value, ()) for entry in self._in_flight for key, value in entry.encoded
        ]
        return encode_batch(rows, codec=self.codec)

    def put_back(self) -> None:
        """Have the entries of the batch in flight, which was not written, wait again, first."""
        for entry in reversed(self.take()):
            self._waiting.appendleft(entry)
            self._waiting_bytes += entry.size

    def take(self) -> list[Entry[T]]:
        """The entries of the batch in flight, which ended: replicated, or refused."""
        ended, self._in_flight = self._in_flight, []
        return ended

    def take_all(self) -> list[Entry[T]]:
        """Every entry, in flight or waiting: the partition is led by another broker now."""
        ended = [*self.take(), *self._waiting]
        self._waiting.clear()
        self._waiting_bytes = 0
        return ended
