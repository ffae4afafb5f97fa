"""A segment's sparse map from timestamps to offsets: its `.timeindex` file.

    entry = int64 timestamp | int32 offset - base_offset                 (big-endian)

An entry says that up to `offset` no record is later than `timestamp`. Entries are added together
with those of the offset index, and only when the timestamp grew. When the segment is rolled or
closed, its latest record gets a last entry, for which one slot is kept free.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import attrs

from core_log.segments.index_file import CorruptIndex, IndexFile
from core_log.storage import Directory
from protocol.records.legacy import NO_TIMESTAMP

ENTRY = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """A timestamp in ms (-1: none) and the offset of the record, or batch, that has it."""

    timestamp: int
    offset: int


@attrs.define(eq=False)
class TimeIndex:
    """The time index of one segment."""

    base_offset: int
    file: IndexFile
    last: TimestampOffset
    is_proven: bool = False

    @classmethod
    def create(cls, directory: Directory, name: str, base_offset: int) -> TimeIndex:
        """Create an index without entries. A file of this name is removed."""
        directory.remove(name)
        index_file = IndexFile(directory, name, ENTRY)
        return cls(base_offset, index_file, _none(base_offset), is_proven=True)

    @classmethod
    def load(cls, directory: Directory, name: str, base_offset: int) -> TimeIndex:
        """Open a sealed index. Raises CorruptIndex."""
        index = cls(base_offset, IndexFile.load(directory, name, ENTRY), _none(base_offset))
        # Entries come only with a later timestamp, so the last is above the first.
        goes_back = False
        if index.file.count:
            (first_timestamp, _), (timestamp, relative) = index.file.ends()
            index.last = TimestampOffset(timestamp, base_offset + relative)
            goes_back = index.file.count > 1 and timestamp <= first_timestamp
        if index.last.offset < base_offset or goes_back:
            raise CorruptIndex(f"{name} ends with {index.last}")
        return index

    @property
    def is_full(self) -> bool:
        """True if the active index has only the slot of the last entry left."""
        return self.file.count >= self.file.max_count - 1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is later than all before."""
        if timestamp > self.last.timestamp:
            self.file.append(timestamp, offset - self.base_offset)
            self.last = TimestampOffset(timestamp, offset)

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Find the last entry not later than `timestamp`, or (-1, base offset)."""
        return self._at(self.file.last_slot_at_most(timestamp, lambda entry: entry[0]))

    def is_in_order(self, entry: TimestampOffset) -> bool:
        """Return whether the entry that `lookup` found goes up to the one behind it."""
        slot = self.file.last_slot_at_most(entry.timestamp, lambda fields: fields[0]) + 1
        if slot == self.file.count:
            return True
        following = self._at(slot)

        # Both fields go up from one entry to the next.
        return entry.timestamp < following.timestamp and entry.offset < following.offset

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at and above `offset`."""
        below = offset - self.base_offset - 1
        # The search is by offset, the second field, which goes up too.
        self.file.truncate(self.file.last_slot_at_most(below, lambda entry: entry[1]) + 1)
        self.last = self._at(self.file.count - 1)

    def _at(self, slot: int) -> TimestampOffset:
        if not 0 <= slot < self.file.count:
            return _none(self.base_offset)
        timestamp, relative = self.file.entry(slot)
        return TimestampOffset(timestamp, self.base_offset + relative)


def _none(base_offset: int) -> TimestampOffset:
    return TimestampOffset(NO_TIMESTAMP, base_offset)
