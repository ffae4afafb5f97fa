"""Fixed-size entries in a file: the common part of the offset index and the time index.

The file of the active segment is lengthened with zeros to its greatest size when the segment
becomes active, and truncated to its entries when the segment is rolled or closed, as Kafka's mapped
files are. Of the entries only the block is kept in memory in which the last look-up ended: a reader
goes on from there, and most of its look-ups need no file. Any other is a binary search of reads of
one entry each, the first of a block (10 for the index of a full gigabyte), and a read of the block.
Only the active segment's index keeps its file open.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable

import attrs

from core_log.storage import Directory, StorageFile

BLOCK_ENTRIES = 256
"""Entries that are read at once, and kept."""


class CorruptIndex(ValueError):
    """An index file that contradicts itself or its log. It can be rebuilt from the log."""


@attrs.define(eq=False)
class IndexFile:
    """Entries of one `layout`. `count` of them are valid, whatever the file's length is."""

    directory: Directory
    name: str
    layout: struct.Struct
    count: int = 0
    # Open while the index is active.
    _file: StorageFile | None = None
    # Open when the name is about to go, for those who still read.
    _held: StorageFile | None = None
    # Entries that are counted and not written; None unless `gather` was called.
    _gathered: bytearray | None = None
    # The block of the last look-up: its first slot, and its entries.
    _block_slot: int = 0
    _block: bytes = b""

    @classmethod
    def load(cls, directory: Directory, name: str, layout: struct.Struct) -> IndexFile:
        """Open an index that was truncated to its entries. Raises CorruptIndex."""
        size = directory.size(name)
        # A file of full length passes: its callers look at the last entry.
        if size is None or size % layout.size:
            raise CorruptIndex(f"{name} is missing or has {size} bytes")
        return cls(directory, name, layout, size // layout.size)

    @property
    def is_active(self) -> bool:
        """True while entries are added: the file is open, and longer than its entries."""
        return self._file is not None

    @property
    def length(self) -> int:
        """Bytes of the file, with free slots for entries to come."""
        return self.count * self.layout.size if self._file is None else self._file.size

    @property
    def max_count(self) -> int:
        """Number of entries that fit before the segment must be rolled; of the active one only."""
        assert self._file is not None
        return self._file.size // self.layout.size

    def activate(self, max_bytes: int) -> None:
        """Keep the file open, and lengthen it to `max_bytes`, rounded down to whole entries."""
        if self._file is None:
            self._file = self.directory.open_segment(self.name)
        size = self.layout.size
        # Entries stay, even above a segment.index.bytes that was lowered.
        self._file.truncate(max(max_bytes // size, self.count) * size)

    def hold(self) -> None:
        """Keep the file open, for it is about to lose its name."""
        self._held = self._opened()

    def gather(self) -> None:
        """Collect new entries, to write them together at the next read or at the end.

        Recovery does this: nobody waits for the index of its segment.
        """
        self._gathered = bytearray()

    def seal(self) -> None:
        """Truncate the file to its entries and close it."""
        self._opened().truncate(self.count * self.layout.size)
        self._file = self._gathered = None

    def append(self, *fields: int) -> None:
        """Write one entry behind the last one."""
        entry = self.layout.pack(*fields)
        if self._gathered is None:
            self._opened().write(self.count * self.layout.size, entry)
        else:
            self._gathered += entry
        self.count += 1
        # The slot may be that of an entry which was taken back.
        self._block = b""

    def entry(self, slot: int) -> tuple[int, ...]:
        """Read the fields of entry `slot`, from 0."""
        assert 0 <= slot < self.count
        size = self.layout.size
        return self.layout.unpack(self._opened().read(slot * size, size))

    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Read the fields of the first entry and of the last one."""
        file, layout = self._opened(), self.layout
        first, last = 0, (self.count - 1) * layout.size
        return (
            layout.unpack(file.read(first, layout.size)),
            layout.unpack(file.read(last, layout.size)),
        )

    def last_slot_at_most(self, target: int, key: Callable[[tuple[int, ...]], int]) -> int:
        """Return the last slot whose `key` is not above `target`, -1 if there is none."""
        layout, size = self.layout, self.layout.size

        def key_in_block(number: int) -> int:
            return key(layout.unpack_from(self._block, number * size))

        # Behind the last entry of the block that is kept there may be others.
        kept = len(self._block) // size
        if not kept or not key_in_block(0) <= target < key_in_block(kept - 1):
            kept = self._read_block(target, key)
        return self._block_slot + bisect_right(range(kept), target, key=key_in_block) - 1

    def _read_block(self, target: int, key: Callable[[tuple[int, ...]], int]) -> int:
        """Keep the block that holds the last slot at most `target`; return its number of entries.

        Where there is no such slot it is the first block.
        """
        file, layout, size = self._opened(), self.layout, self.layout.size

        def first_key(slot: int) -> int:
            return key(layout.unpack(file.read(slot * size, size)))

        # The search ends at `count`: free slots behind it hold zeros.
        firsts = range(0, self.count, BLOCK_ENTRIES)
        number = max(0, bisect_right(firsts, target, key=first_key) - 1)
        slot = number * BLOCK_ENTRIES
        kept = min(BLOCK_ENTRIES, self.count - slot)
        self._block_slot = slot
        self._block = file.read(slot * size, kept * size)
        return kept

    def truncate(self, count: int) -> None:
        """Remove the entries from `count` on. The file's length stays."""
        if count < self.count:  # removed entries are zeroed, as free slots are
            size = self.layout.size
            self._opened().write(count * size, bytes((self.count - count) * size))
            self.count = count
            self._block = b""

    def file(self) -> StorageFile:
        """Return the file, to fsync it."""
        return self._opened()

    def _opened(self) -> StorageFile:
        file = self._file or self._held or self.directory.open_segment(self.name)

        # Write what was gathered before anything is read or truncated.
        if self._gathered:
            gathered = bytes(self._gathered)
            self._gathered = bytearray()
            # `count` includes the gathered entries: they begin that far below it.
            file.write(self.count * self.layout.size - len(gathered), gathered)
        return file
