"""The aborted transactions of a segment: its `.txnindex` file (KIP-98).

    entry = int16 version 0 | int64 producer id | int64 first offset | int64 last offset
          | int64 last stable offset                                      (big-endian)

An entry is written with the transaction's marker, whose offset is its last one, and into the
segment that holds the marker. So entries go up by last offset, and the records of a transaction may
lie in earlier segments. A segment without aborted transactions has no file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from core_log.segments.index_file import CorruptIndex
from core_log.storage import Directory, ReadableFile
from protocol.frozen import frozen

ENTRY = struct.Struct(">hqqqq")
VERSION = 0
_LAST_OFFSET = struct.Struct(">q")
_LAST_OFFSET_AT = 18
"""Position of the last offset in an entry."""
ENTRIES_AT_ONCE = 500
"""Entries that are read at once: a fetch looks at no more behind those that concern it."""


@frozen
class IndexBytes:
    """An index that is in memory."""

    data: bytes

    @property
    def size(self) -> int:
        """Its bytes."""
        return len(self.data)

    def read(self, start: int, size: int) -> bytes:
        """Read up to `size` bytes."""
        return self.data[start : start + size]


class AbortedTransaction(NamedTuple):
    """A producer's transaction from its first record to its marker, both inclusive.

    `last_stable_offset` is the value after the end of this transaction.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def read_transaction_index(directory: Directory, name: str) -> list[AbortedTransaction]:
    """Read the entries of a file, if there is one. A partial entry at its end is left out.

    Raises CorruptIndex for entries of another version, and for entries that do not go up.
    """
    return [AbortedTransaction(*row) for row in _rows(directory.read(name) or b"", name)]


def decode_entry(data: bytes) -> AbortedTransaction | None:
    """Decode one entry; None if it is not whole, or of another version."""
    if len(data) != ENTRY.size:
        return None
    version, *fields = ENTRY.unpack(data)
    return AbortedTransaction(*fields) if version == VERSION else None


def _rows(data: bytes, name: str, before: int = -1) -> Iterator[tuple[int, int, int, int]]:
    """Go through the fields of entries that ended behind offset `before`. Raises CorruptIndex."""
    end = len(data) - len(data) % ENTRY.size
    # No memoryview: a cycle with one that is in use, as of an error, crashes Python before 3.13.
    rows = ENTRY.iter_unpack(data[:end])
    for version, producer_id, first_offset, last_offset, last_stable_offset in rows:
        if version != VERSION:
            raise CorruptIndex(f"{name} has an entry of version {version}")
        # Markers come in order of offset, and an entry with each.
        if last_offset <= before:
            raise CorruptIndex(f"{name} goes back from {before} to {last_offset}")
        before = last_offset
        yield producer_id, first_offset, last_offset, last_stable_offset


def encode_transaction_index(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Encode a file with these entries, which go up by last offset."""
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def collect_aborted(
    index: ReadableFile, name: str, offset: int, end_offset: int
) -> tuple[list[AbortedTransaction], bool]:
    """Collect the transactions of one index with records from `offset` to `end_offset`.

    The second value says whether they are all: once the last stable offset has reached the end, no
    later transaction can have begun below it. Raises CorruptIndex, as far as the entries are looked
    at.
    """
    count = index.size // ENTRY.size

    def last_offset_of(number: int) -> int:
        position = number * ENTRY.size + _LAST_OFFSET_AT
        (last_offset,) = _LAST_OFFSET.unpack(index.read(position, _LAST_OFFSET.size))
        return int(last_offset)

    # It overlaps: it ended at `offset` or above, and began below the end.
    first = bisect_left(range(count), offset, key=last_offset_of)
    collected = []
    before = -1
    for number in range(first, count, ENTRIES_AT_ONCE):
        # To read all of the index would cost each fetch what all aborted transactions are.
        size = min(ENTRIES_AT_ONCE, count - number) * ENTRY.size
        for row in _rows(index.read(number * ENTRY.size, size), name, before):
            _, first_offset, before, last_stable_offset = row
            if first_offset < end_offset:
                collected.append(AbortedTransaction(*row))
            if last_stable_offset >= end_offset:
                return collected, True
    return collected, False


def truncate_transaction_index(directory: Directory, name: str, offset: int) -> None:
    """Remove the transactions that ended at `offset` or above, and bytes that are no entry."""
    data = directory.read(name)
    if data is None:
        return

    # Keep the entries up to the first that must go, or cannot be read.
    kept = 0
    for at in range(0, len(data) - ENTRY.size + 1, ENTRY.size):
        version, _, _, last_offset, _ = ENTRY.unpack_from(data, at)
        if version != VERSION or last_offset >= offset:
            break
        kept = at + ENTRY.size

    # A segment without aborted transactions has no file.
    if kept:
        directory.open_segment(name).truncate(kept)
    else:
        directory.remove(name)
