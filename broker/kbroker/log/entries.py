"""The entries of a log file one after the other: batches, or messages of the formats before.

What is looked at may be damaged, and is to be shown as far as it goes: a wrong checksum is told
(`Entry.fault`), not raised. Only where an entry cannot be told from garbage does the walk end.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import attrs

from core_log.storage import ReadableFile
from protocol.records.batch_header import HEADER_BYTES, MAGIC, read_header
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import BYTES_TO_MAGIC, MAGIC_AT, EntryHeader, check_entry
from protocol.records.legacy import SMALLEST_ENTRY, read_message_header, size_at

READ_BYTES = 1024 * 1024


@attrs.frozen(slots=False)
class Entry:
    """A whole entry, and the byte of its file at which it is."""

    position: int
    header: EntryHeader
    data: memoryview

    @property
    def end_position(self) -> int:
        """Where the next one is."""
        return self.position + len(self.data)

    @cached_property
    def fault(self) -> str | None:
        """What is wrong with its checksum; None if nothing is."""
        try:
            check_entry(self.data, 0, self.header)
        except CorruptRecord as error:
            return str(error)
        return None


def entries(file: ReadableFile, start: int = 0, end: int | None = None) -> Iterator[Entry]:
    """The whole entries from position `start` to `end`; the file may end within one.

    Raises CorruptRecord for what cannot be an entry.
    """
    chunk, chunk_start = memoryview(b""), start
    position, end = start, file.size if end is None else end
    while end - position > BYTES_TO_MAGIC:
        at = position - chunk_start
        if len(chunk) - at < min(HEADER_BYTES, end - position):
            chunk, chunk_start, at = _read(file, position, READ_BYTES, end), position, 0
        size = size_at(chunk, at)
        if size < SMALLEST_ENTRY or chunk[at + MAGIC_AT] > MAGIC:
            raise CorruptRecord(
                f"no batch at position {position}: size {size}, format {chunk[at + MAGIC_AT]}"
            )
        if size > end - position:
            return
        if len(chunk) - at < size:
            chunk, chunk_start, at = _read(file, position, max(size, READ_BYTES), end), position, 0
            if len(chunk) < size:  # it was cut since it was opened
                return
        data = chunk[at : at + size]
        head = read_header if data[MAGIC_AT] == MAGIC else read_message_header
        yield Entry(position, head(data), data)
        position += size


def is_room(file: ReadableFile, start: int) -> bool:
    """Whether there are only zeros from `start` on: room that was set aside for more entries."""
    while data := file.read(start, READ_BYTES):
        if any(data):
            return False
        start += len(data)
    return True


def _read(file: ReadableFile, position: int, size: int, end: int) -> memoryview:
    return memoryview(file.read(position, min(size, end - position)))
