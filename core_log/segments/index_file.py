"""Fixed-size entries in a file: the common part of the offset index and the time index.

The file of the active segment is lengthened with zeros to its greatest size when the segment
becomes active, and truncated to its entries when the segment is rolled or closed, as Kafka's mapped
files are. Of the entries only the block is kept in memory in which the last look-up ended: a reader
goes on from there, and most of its look-ups need no file. Any other is a binary search of reads of
one entry each, the first of a block (10 for the index of a full gigabyte), and a read of the block.

No file is kept open: a broker has thousands of partitions. New entries are gathered, and written
together. If they are lost with the process, recovery makes them again, as it reads the active
segment whole.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable

import attrs

from core_log.storage import Directory, StorageFile

BLOCK_ENTRIES = 256
"""Entries that are read at once, and kept."""
GATHERED_BYTES = 2048
"""Entries that are written at once: those of some hundred index intervals."""


class CorruptIndex(ValueError):
    """An index file that contradicts itself or its log. It can be rebuilt from the log."""


@attrs.define(eq=False)
class IndexFile:
    """Entries of one `layout`. `count` of them are valid, whatever the file's length is."""

    directory: Directory
    name: str
    layout: struct.Struct
    count: int = 0
    # Length of the file while the index is active.
    _length: int | None = None
    # Open when the name is about to go, for those who still read.
    _held: StorageFile | None = None
    # The last entries, which are counted and not written.
    _gathered: bytearray = attrs.field(factory=bytearray)
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
        """True while entries are added: the file is longer than its entries."""
        return self._length is not None

    @property
    def length(self) -> int:
        """Bytes of the file, with free slots for entries to come."""
        return self.count * self.layout.size if self._length is None else self._length

    @property
    def max_count(self) -> int:
        """Number of entries that fit before the segment must be rolled; of the active one only."""
        assert self._length is not None
        return self._length // self.layout.size

    def activate(self, max_bytes: int) -> None:
        """Take entries from now on. The file is lengthened to `max_bytes`, or to whole entries."""
        size = self.layout.size
        # Entries stay, even above a segment.index.bytes that was lowered.
        length = max(max_bytes // size, self.count) * size
        # Nothing is opened to no purpose: a roll that found no descriptor ends here.
        if self._length == length:
            return
        self._opened().truncate(length)
        self._length = length

    def hold(self) -> None:
        """Keep the file open, for it is about to lose its name."""
        file = self._opened()
        file.hold()
        self._held = file

    def seal(self) -> None:
        """Truncate the file to its entries. No more are added."""
        file = self._opened()
        self._write_gathered(file)
        file.truncate(self.count * self.layout.size)
        self._length = None

    def append(self, *fields: int) -> None:
        """Add one entry behind the last one. Raises OSError, with nothing added."""
        entry = self.layout.pack(*fields)
        if self._length is None:
            self._opened().write(self.count * self.layout.size, entry)
        else:
            if len(self._gathered) >= GATHERED_BYTES:
                self._write_gathered(self._opened())
            self._gathered += entry
        self.count += 1
        # The slot may be that of an entry which was taken back.
        self._block = b""

    def remove_last(self) -> None:
        """Remove the last entry. Writes nothing."""
        # The next entry is written over its bytes.
        del self._gathered[-self.layout.size :]
        self.count -= 1
        self._block = b""

    def entry(self, slot: int) -> tuple[int, ...]:
        """Read the fields of entry `slot`, from 0."""
        assert 0 <= slot < self.count
        size = self.layout.size
        return self.layout.unpack(self._reader()(slot * size, size))

    def ends(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Read the fields of the first entry and of the last one."""
        read, layout = self._reader(), self.layout
        first, last = 0, (self.count - 1) * layout.size
        return (
            layout.unpack(read(first, layout.size)),
            layout.unpack(read(last, layout.size)),
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
        read, layout, size = self._reader(), self.layout, self.layout.size

        def first_key(slot: int) -> int:
            return key(layout.unpack(read(slot * size, size)))

        # The search ends at `count`: free slots behind it hold zeros.
        firsts = range(0, self.count, BLOCK_ENTRIES)
        number = max(0, bisect_right(firsts, target, key=first_key) - 1)
        slot = number * BLOCK_ENTRIES
        kept = min(BLOCK_ENTRIES, self.count - slot)
        self._block_slot = slot
        self._block = read(slot * size, kept * size)
        return kept

    def truncate(self, count: int) -> None:
        """Remove the entries from `count` on. The file's length stays."""
        if count < self.count:  # removed entries are zeroed, as free slots are
            size = self.layout.size
            file = self._opened()
            self._write_gathered(file)
            file.write(count * size, bytes((self.count - count) * size))
            self.count = count
            self._block = b""

    def file(self) -> StorageFile:
        """Return the file, to fsync it."""
        file = self._opened()
        self._write_gathered(file)
        return file

    def _reader(self) -> Callable[[int, int], bytes]:
        """Return what reads bytes of entries: from the file, or those that are not in it yet."""
        file: StorageFile | None = None
        written = self._written

        def read(start: int, size: int) -> bytes:
            nonlocal file
            behind = bytes(self._gathered[max(start - written, 0) : max(start + size - written, 0)])
            if start >= written:
                return behind
            file = file or self._opened()
            return file.read(start, min(size, written - start)) + behind

        return read

    @property
    def _written(self) -> int:
        """Bytes of the entries that are in the file."""
        return self.count * self.layout.size - len(self._gathered)

    def _write_gathered(self, file: StorageFile) -> None:
        if self._gathered:
            file.write(self._written, bytes(self._gathered))
            self._gathered.clear()

    def _opened(self) -> StorageFile:
        # A partition at rest has no index open (fault outside-O6).
        return self._held or self.directory.open_segment(self.name)
