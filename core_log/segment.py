"""A segment: one file of batches and its two indexes, named by the first offset it may hold.

    00000000000000001200.log  .index  .timeindex

The last segment of a log is active: it alone is written to, and its indexes have their full
length. An index entry is due when more than index.interval.bytes were appended since the last
one; it is judged before the append and points at it, so that a search never walks much further.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import attrs

from core_log.batch_scan import ShallowBatch, scan
from core_log.config import INT_MAX, LogConfig
from core_log.offset_index import OffsetIndex
from core_log.storage import BytesLike, Directory, StorageFile
from core_log.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from protocol.records.corrupt_record import CorruptRecord

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
SUFFIXES = (LOG, INDEX, TIME_INDEX)
TRANSACTION_INDEX = ".txnindex"
"""A file of transactional producers that a JVM broker may have left beside."""


def file_name(base_offset: int, suffix: str) -> str:
    """The name of a segment's file, of `suffix` with its dot."""
    return f"{base_offset:020d}{suffix}"


def base_offset_of(name: str) -> int:
    """The base offset in a file's name. Raises ValueError if it is no segment's file."""
    digits, _, _ = name.partition(".")
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{name} is not named as a segment's file is")
    return int(digits)


@attrs.define(eq=False)
class Segment:
    """One segment of a log, open for reading; the active one also for writing."""

    directory: Directory
    base_offset: int
    log: StorageFile
    offset_index: OffsetIndex
    time_index: TimeIndex
    created_ms: int
    latest: TimestampOffset
    first_timestamp: int | None = None
    bytes_since_index_entry: int = 0

    @classmethod
    def create(cls, directory: Directory, base_offset: int, now_ms: int) -> Segment:
        """A segment with nothing in it; files that have its names are taken for leftovers."""
        directory.remove(file_name(base_offset, LOG))
        return cls.open_without_indexes(directory, base_offset, now_ms)

    @classmethod
    def open_without_indexes(cls, directory: Directory, base_offset: int, now_ms: int) -> Segment:
        """Open the log file; the indexes are empty and wait for recovery."""
        return cls(
            directory,
            base_offset,
            _log_file(directory, base_offset),
            *_no_indexes(directory, base_offset),
            now_ms,
            TimestampOffset(NO_TIMESTAMP, base_offset),
        )

    @classmethod
    def load(cls, directory: Directory, base_offset: int, now_ms: int) -> Segment:
        """Open a segment that was sealed. Raises CorruptIndex."""
        log = _log_file(directory, base_offset)
        offset_index = OffsetIndex.load(
            directory, file_name(base_offset, INDEX), base_offset, log.size
        )
        time_index = TimeIndex.load(directory, file_name(base_offset, TIME_INDEX), base_offset)
        return cls(directory, base_offset, log, offset_index, time_index, now_ms, time_index.last)

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.log.size

    @property
    def largest_timestamp(self) -> int:
        """The latest timestamp of a record in ms; without any, when the file was last written."""
        if self.latest.timestamp >= 0:
            return self.latest.timestamp
        return self.modified_ms

    @property
    def modified_ms(self) -> int:
        """When the log file was last written to."""
        return self.directory.modified_ms(file_name(self.base_offset, LOG))

    def should_roll(
        self, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a new segment must begin before `size` bytes up to `last_offset` are appended.

        Time is judged by the first batch's timestamp against the new one's, and by the clock
        only where the first has none (KAFKA-4099). An empty segment is never rolled onto itself
        (KAFKA-6388), it only gives way to offsets it cannot index.
        """
        if last_offset - self.base_offset > INT_MAX:
            return True
        if self.size == 0:
            return False
        first_timestamp = self._first_timestamp()
        reached = max_timestamp if first_timestamp >= 0 else now_ms
        started = first_timestamp if first_timestamp >= 0 else self.created_ms
        return (
            self.size > config.segment_bytes - size
            or reached - started > config.segment_ms - self._jitter_ms(config)
            or self.offset_index.is_full
            or self.time_index.is_full
        )

    def append(
        self,
        buffers: Sequence[BytesLike],
        last_offset: int,
        latest: TimestampOffset,
        index_interval_bytes: int,
    ) -> None:
        """Write whole batches that end with `last_offset`. Raises OSError, with nothing written.

        `latest` is the latest timestamp in them and the last offset of the batch that has it.
        """
        position = self.log.size
        size = sum(map(len, buffers))
        assert position + size <= INT_MAX
        assert 0 <= last_offset - self.base_offset <= INT_MAX
        self.log.append(buffers)
        if position == 0:
            self.first_timestamp = latest.timestamp
        if latest.timestamp > self.latest.timestamp:
            self.latest = latest
        try:
            if self.bytes_since_index_entry > index_interval_bytes:
                self.add_index_entry(last_offset, position)
        except OSError:
            self.log.truncate(position)
            raise
        self.bytes_since_index_entry += size

    def add_index_entry(self, offset: int, position: int) -> None:
        """Index the batch, or batches, at `position` that end with `offset`."""
        self.offset_index.append(offset, position)
        self.time_index.maybe_append(*self.latest)
        self.bytes_since_index_entry = 0

    def find(self, offset: int, start: int = 0) -> ShallowBatch | None:
        """The first batch at or behind position `start` that holds `offset` or a later one."""
        start = max(start, self.offset_index.lookup(offset).position)
        for batch in scan(self.log, start):
            if batch.last_offset >= offset:
                return batch
        return None

    def next_offset(self) -> int:
        """One above the last offset in it; the base offset if it is empty.

        Raises CorruptRecord when the file does not end with a whole batch.
        """
        offset, position = self.base_offset, self.offset_index.last().position
        for batch in scan(self.log, position):
            offset, position = batch.last_offset + 1, batch.end_position
        if position != self.size:
            raise CorruptRecord(f"{self.size - position} bytes behind the last batch")
        return offset

    def reset_indexes(self) -> None:
        """Start over with empty indexes, to build them from the log."""
        self.offset_index, self.time_index = _no_indexes(self.directory, self.base_offset)
        self.latest = self.time_index.last
        self.first_timestamp = None
        self.bytes_since_index_entry = 0

    def activate(self, config: LogConfig) -> None:
        """Make it the segment that is written to: the indexes get their full length."""
        self.offset_index.file.activate(config.segment_index_bytes)
        self.time_index.file.activate(config.segment_index_bytes)

    def seal(self) -> None:
        """Make it one that is only read, after the last append: indexes end as they must."""
        self.time_index.maybe_append(*self.latest)
        self.offset_index.file.seal()
        self.time_index.file.seal()

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut off the batch that holds `offset`, and all behind it; the segment is active."""
        cut = self.find(offset)  # by the indexes, so before they are cut
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if cut is not None:
            self.log.truncate(cut.position)
        if self.log.size == 0:
            self.created_ms, self.first_timestamp = now_ms, None
        self.bytes_since_index_entry = 0
        self.reload_latest()

    def reload_latest(self) -> None:
        """Find the latest timestamp: the last indexed one, or one behind it in the log."""
        self.latest = self.time_index.last
        for batch in scan(self.log, self.offset_index.lookup(self.latest.offset).position):
            if batch.max_timestamp > self.latest.timestamp:
                self.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)

    def files_to_flush(self) -> list[StorageFile]:
        """The files to fsync; the indexes once it is sealed, for until then recovery makes them."""
        if self.offset_index.file.is_active:
            return [self.log]
        return [self.log, self.offset_index.file.file(), self.time_index.file.file()]

    def rename_files(self, suffix: str) -> list[str]:
        """Add `suffix` to the names of all its files; the new names. Readers keep theirs."""
        renamed = []
        for kind in (*SUFFIXES, TRANSACTION_INDEX):
            name = file_name(self.base_offset, kind)
            if self.directory.size(name) is not None:
                self.directory.rename(name, name + suffix)
                renamed.append(name + suffix)
        return renamed

    def _first_timestamp(self) -> int:
        if self.first_timestamp is None:
            first = next(scan(self.log), None)
            self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        return self.first_timestamp

    def _jitter_ms(self, config: LogConfig) -> int:
        """A part of segment.jitter.ms that differs from log to log and segment to segment."""
        most = min(config.segment_jitter_ms, config.segment_ms)
        return (
            zlib.crc32(f"{self.directory.name}/{self.base_offset}".encode()) % most if most else 0
        )


def _log_file(directory: Directory, base_offset: int) -> StorageFile:
    file = directory.open_segment(file_name(base_offset, LOG))
    if file.size > INT_MAX:  # an index entry could not name a position behind
        raise ValueError(f"segment {base_offset} has {file.size} bytes, more than {INT_MAX}")
    return file


def _no_indexes(directory: Directory, base_offset: int) -> tuple[OffsetIndex, TimeIndex]:
    return (
        OffsetIndex.create(directory, file_name(base_offset, INDEX), base_offset),
        TimeIndex.create(directory, file_name(base_offset, TIME_INDEX), base_offset),
    )
