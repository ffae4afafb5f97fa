"""A segment's sparse map from offsets to file positions: its `.index` file.

    entry = int32 offset - base_offset | int32 position                  (big-endian)

An entry says that the batch at `position` holds `offset` or lower ones. The search for an offset
starts at the last entry that is not above it, and goes on in the log. Kafka writes the last offset
of an append (older versions the first); both serve.

A file that was found may hold anything, so whoever looks something up in it checks the entry
against the log. Entries that were made from the log in this run are `proven`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import attrs

from core_log.segments.index_file import CorruptIndex, IndexFile
from core_log.storage import Directory

ENTRY = struct.Struct(">ii")


class OffsetPosition(NamedTuple):
    """An entry with its absolute offset."""

    offset: int
    position: int


@attrs.define(eq=False)
class OffsetIndex:
    """The offset index of one segment."""

    base_offset: int
    file: IndexFile
    # The base offset while there is no entry.
    last_offset: int
    is_proven: bool = False

    @classmethod
    def create(cls, directory: Directory, name: str, base_offset: int) -> OffsetIndex:
        """Create an index without entries. A file of this name is removed."""
        directory.remove(name)
        return cls(base_offset, IndexFile(directory, name, ENTRY), base_offset, is_proven=True)

    @classmethod
    def load(cls, directory: Directory, name: str, base_offset: int, log_size: int) -> OffsetIndex:
        """Open a sealed index. Raises CorruptIndex.

        An index that a crash left at its full length ends in entries of zero, which shows here.
        """
        index = cls(base_offset, IndexFile.load(directory, name, ENTRY), base_offset)

        # Only the ends are checked: a look-up checks the entry that it finds.
        if index.file.count:
            (first_relative, _), (last_relative, last_position) = index.file.ends()
            if last_relative < 0 or (index.file.count > 1 and last_relative <= first_relative):
                raise CorruptIndex(f"{name} ends with offset {base_offset + last_relative}")
            if not 0 <= last_position < log_size:
                raise CorruptIndex(f"{name} ends with position {last_position} of {log_size}")
            index.last_offset = base_offset + last_relative
        return index

    @property
    def is_full(self) -> bool:
        """True if the active index has no slot left."""
        return self.file.count >= self.file.max_count

    def append(self, offset: int, position: int) -> None:
        """Add an entry. Offsets go up."""
        assert self.file.count == 0 or offset > self.last_offset
        self.file.append(offset - self.base_offset, position)
        self.last_offset = offset

    def remove_last(self) -> None:
        """Remove the last entry, whose batch was taken back. Writes nothing."""
        self.file.remove_last()
        self.last_offset = self.last().offset

    def lookup(self, offset: int) -> OffsetPosition:
        """Find the last entry not above `offset`, or the segment's start."""
        slot = self.file.last_slot_at_most(offset - self.base_offset, _relative_offset)
        return self._at(slot)

    def first_from(self, position: int) -> OffsetPosition | None:
        """Find the first entry of a batch at `position` or behind it."""
        slot = self.file.last_slot_at_most(position - 1, _position) + 1
        return self._at(slot) if slot < self.file.count else None

    def last(self) -> OffsetPosition:
        """Return the last entry, or the segment's start."""
        return self._at(self.file.count - 1)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        below = offset - self.base_offset - 1
        self.file.truncate(self.file.last_slot_at_most(below, _relative_offset) + 1)
        self.last_offset = self.last().offset

    def _at(self, slot: int) -> OffsetPosition:
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self.file.entry(slot)
        return OffsetPosition(self.base_offset + relative, position)


def _relative_offset(entry: tuple[int, ...]) -> int:
    return entry[0]


def _position(entry: tuple[int, ...]) -> int:
    return entry[1]
