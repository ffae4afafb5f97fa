"""Read the entries of a log file one after the other: batches, or messages of formats 0 and 1.

A damaged log is read as far as possible. A wrong checksum is reported in `LogEntry.fault` and not
raised; the walk ends only where no entry can be recognised.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from core_log.storage import ReadableFile
from protocol.frozen import frozen
from protocol.records.batch_header import HEADER_BYTES, MAGIC, read_header
from protocol.records.checksums import check_entry
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import BYTES_TO_MAGIC, MAGIC_AT, EntryHeader
from protocol.records.legacy import SMALLEST_ENTRY, read_message_header, size_at

READ_BYTES = 1024 * 1024


@frozen(slots=False)
class LogEntry:
    """A whole entry, which begins at byte `position` of its file."""

    position: int
    header: EntryHeader
    data: memoryview

    @property
    def end_position(self) -> int:
        """The position of the next entry."""
        return self.position + len(self.data)

    @cached_property
    def fault(self) -> str | None:
        """Check the entry's checksum: a message if it is wrong, else None."""
        try:
            check_entry(self.data, 0, self.header)
        except CorruptRecord as error:
            return str(error)
        return None


def read_entries(file: ReadableFile, start: int = 0, end: int | None = None) -> Iterator[LogEntry]:
    """Yield the whole entries from position `start` to `end`; an incomplete last one is left out.

    Raises CorruptRecord at bytes that cannot be an entry.
    """
    chunk = memoryview(b"")
    chunk_start = start
    position = start
    if end is None:
        end = file.size

    while end - position > BYTES_TO_MAGIC:
        # The header.
        at = position - chunk_start
        if len(chunk) - at < min(HEADER_BYTES, end - position):
            chunk = _read(file, position, READ_BYTES, end)
            chunk_start = position
            at = 0
        size = size_at(chunk, at)
        if size < SMALLEST_ENTRY or chunk[at + MAGIC_AT] > MAGIC:
            raise CorruptRecord(
                f"no batch at position {position}: size {size}, format {chunk[at + MAGIC_AT]}"
            )

        # An incomplete entry: torn, or not written to its end so far.
        if size > end - position:
            return

        # The whole entry.
        if len(chunk) - at < size:
            chunk = _read(file, position, max(size, READ_BYTES), end)
            chunk_start = position
            at = 0
            if len(chunk) < size:  # the file was truncated since it was opened
                return
        data = chunk[at : at + size]
        read = read_header if data[MAGIC_AT] == MAGIC else read_message_header
        yield LogEntry(position, read(data), data)
        position += size


def is_preallocated(file: ReadableFile, start: int) -> bool:
    """True if the file has only zeros from `start` on: space preallocated for more entries."""
    while data := file.read(start, READ_BYTES):
        if any(data):
            return False
        start += len(data)
    return True


def _read(file: ReadableFile, position: int, size: int, end: int) -> memoryview:
    return memoryview(file.read(position, min(size, end - position)))
