"""A segment: one file of batches and its two indexes, named by the first offset it may hold.

    00000000000000001200.log  .index  .timeindex

The last segment of a log is active: it alone is written to, and its indexes have their full
length. An index entry is due when more than index.interval.bytes were appended since the last
one; it is judged before the append and points at it, so that a search never walks much further.
"""

from __future__ import annotations

import contextlib
import logging
import zlib
from collections.abc import Callable, Sequence

import attrs

from core_log.config import INT_MAX, LogConfig
from core_log.segments.batch_scan import ShallowBatch, begins_at_or_below, scan
from core_log.segments.file_name import (
    ALL_SUFFIXES,
    INDEX,
    LOG,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from core_log.segments.index_file import CorruptIndex
from core_log.segments.offset_index import OffsetIndex, OffsetPosition
from core_log.segments.time_index import TimeIndex, TimestampOffset
from core_log.segments.transaction_index import (
    AbortedTransaction,
    read_transaction_index,
    truncate_transaction_index,
)
from core_log.storage import BytesLike, Directory, StorageFile
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP

REBUILT_INTERVAL_BYTES = 4096

logger = logging.getLogger(__name__)


class BadIndex(Exception):
    """A look-up has found an index of `segment` that does not fit its log, and may not make it
    anew: that reads the segment whole."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"segment {segment.base_offset}: {segment.bad_index}")
        self.segment = segment


@attrs.frozen
class HeldFiles:
    """What the files of a segment say that are found by their names."""

    modified_ms: int
    aborted: Sequence[AbortedTransaction]


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
    suffix: str = ""
    aborted: StorageFile | None = None
    bad_index: str | None = None
    """What is wrong with its indexes, from the moment that is found until they are made anew."""
    _held: HeldFiles | None = None

    @classmethod
    def create(
        cls, directory: Directory, base_offset: int, monotonic_ms: int, suffix: str = ""
    ) -> Segment:
        """A segment with nothing in it; files that have its names are taken for leftovers.

        A `suffix`, CLEANED, ends the names of its files while it is not a part of the log.
        """
        for kind in (LOG, TRANSACTION_INDEX):
            directory.remove(file_name(base_offset, kind) + suffix)
        return cls.open_without_indexes(directory, base_offset, monotonic_ms, suffix)

    @classmethod
    def open_without_indexes(
        cls, directory: Directory, base_offset: int, monotonic_ms: int, suffix: str = ""
    ) -> Segment:
        """Open the log file; the indexes are empty and wait for recovery."""
        return cls(
            directory,
            base_offset,
            _log_file(directory, base_offset, suffix),
            *_no_indexes(directory, base_offset, suffix),
            monotonic_ms,
            TimestampOffset(NO_TIMESTAMP, base_offset),
            suffix=suffix,
        )

    @classmethod
    def load(cls, directory: Directory, base_offset: int, monotonic_ms: int) -> Segment:
        """Open a segment that was sealed. Raises CorruptIndex."""
        log = _log_file(directory, base_offset)
        offset_index = OffsetIndex.load(
            directory, file_name(base_offset, INDEX), base_offset, log.size
        )
        time_index = TimeIndex.load(directory, file_name(base_offset, TIME_INDEX), base_offset)
        return cls(
            directory, base_offset, log, offset_index, time_index, monotonic_ms, time_index.last
        )

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
        if self._held is not None:
            return self._held.modified_ms
        return self.directory.modified_ms(file_name(self.base_offset, LOG) + self.suffix)

    def hold(self) -> None:
        """Have all that is read of it readable though its files lose their names. It is sealed, and
        changes no more. Raises OSError and CorruptIndex."""
        self.offset_index.file.hold()
        self.time_index.file.hold()
        self._held = HeldFiles(self.modified_ms, self.aborted_transactions())

    def aborted_transactions(self) -> Sequence[AbortedTransaction]:
        """Those that ended in it. Raises OSError and CorruptIndex."""
        if self._held is not None:
            return self._held.aborted
        return read_transaction_index(self.directory, self._name(TRANSACTION_INDEX))

    def should_roll(
        self,
        config: LogConfig,
        size: int,
        last_offset: int,
        max_timestamp: int,
        monotonic_ms: Callable[[], int],
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
        started = self.read_first_timestamp()
        if started >= 0:
            age_ms = max_timestamp - started
        else:
            age_ms = monotonic_ms() - self.created_ms
        return (
            self.size > config.segment_bytes - size
            or age_ms > config.max_segment_ms - self._jitter_ms(config)
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
        position, before = self.log.size, (self.latest, self.first_timestamp)
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
            self.latest, self.first_timestamp = before
            raise
        self.bytes_since_index_entry += size

    def add_index_entry(self, offset: int, position: int) -> None:
        """Index the batch, or batches, at `position` that end with `offset`."""
        self.offset_index.append(offset, position)
        try:
            self.time_index.maybe_append(*self.latest)
        except OSError:
            self.offset_index.remove_last()
            raise
        self.bytes_since_index_entry = 0

    def index(self, batch: ShallowBatch, index_interval_bytes: int) -> None:
        """Index a batch that is in the log file, and that is the next one."""
        if batch.max_timestamp > self.latest.timestamp:
            self.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        if self.bytes_since_index_entry > index_interval_bytes:
            self.add_index_entry(batch.last_offset, batch.position)
        self.bytes_since_index_entry += batch.size

    def find(self, offset: int, start: int = 0, *, may_rebuild: bool = True) -> ShallowBatch | None:
        """The first batch at or behind position `start` that holds `offset` or a later one.

        Raises CorruptRecord and, where an index is bad that it may not rebuild, BadIndex.
        """
        position = max(start, self.position_before(offset, may_rebuild=may_rebuild))
        before = self.base_offset - 1
        for batch in scan(self.log, position):
            if batch.last_offset >= offset:
                return batch
            if batch.last_offset <= before:
                raise CorruptRecord(f"offset {batch.last_offset} is out of order")
            position, before = batch.end_position, batch.last_offset
        if position < self.size:  # or its offsets would seem to be in no segment
            raise CorruptRecord(f"the batch at position {position} reaches over the file's end")
        return None

    def end_below(self, offset: int) -> int:
        """Where the last batch ends that is wholly below `offset`; the base offset without one."""
        return self._last_below(offset)[0]

    def _last_below(self, offset: int) -> tuple[int, int]:
        """The end offset and the end position of the last batch that is wholly below `offset`.

        Damage that lies before it ends the search: what is to be cut is cut there too.
        """
        for start in (self.position_before(offset - 1), 0):
            end_offset, position = self.base_offset, 0
            with contextlib.suppress(CorruptRecord):
                for batch in scan(self.log, start):
                    if batch.last_offset >= offset:
                        break
                    end_offset, position = batch.last_offset + 1, batch.end_position
            if position > 0:
                break
        return end_offset, position

    def position_before(self, offset: int, *, may_rebuild: bool = True) -> int:
        """Where to begin to look for the batch that holds `offset`, by the index. Raises BadIndex
        for one that is bad, unless it may be rebuilt."""
        if self.bad_index is not None:
            self._mend(may_rebuild)
        found = self.offset_index.lookup(offset)
        if not self.offset_index.is_proven and not self._is_of_log(found):
            self.bad_index = f"{self._name(INDEX)} has {found}"
            self._mend(may_rebuild)
            found = self.offset_index.lookup(offset)
        return found.position

    def position_before_time(self, timestamp: int, offset: int, *, may_rebuild: bool = True) -> int:
        """Where to begin to look for the first record from `offset` on that is not earlier than
        `timestamp`, by the indexes. Raises BadIndex like `position_before`."""
        if self.bad_index is not None:
            self._mend(may_rebuild)
        found = self.time_index.lookup(timestamp)
        if not self.time_index.is_proven and not self._is_true(found, may_rebuild):
            self.bad_index = f"{self._name(TIME_INDEX)} has {found}"
            self._mend(may_rebuild)
            found = self.time_index.lookup(timestamp)
        return self.position_before(max(found.offset, offset), may_rebuild=may_rebuild)

    def _mend(self, may_rebuild: bool) -> None:
        if not may_rebuild:
            raise BadIndex(self)
        self.rebuild_bad_indexes()

    def rebuild_bad_indexes(self) -> None:
        """Make the indexes anew if they are known to be bad. Raises OSError."""
        if self.bad_index is not None:
            self.rebuild_indexes(self.bad_index)
            self.bad_index = None

    def check_end(self) -> int:
        """`next_offset` of a segment that was loaded, once the end of its indexes is found to be
        that of the log. Raises CorruptIndex and CorruptRecord."""
        indexed, latest = self.offset_index.last(), self.time_index.last
        if not self._is_of_log(indexed):
            raise CorruptIndex(f"{self._name(INDEX)} ends with {indexed}")
        end_offset, position = self.base_offset, indexed.position
        is_true = latest.timestamp < 0
        for batch in scan(self.log, indexed.position):
            if batch.base_offset < end_offset:
                raise CorruptRecord(f"offset {batch.base_offset} is out of order")
            if batch.max_timestamp > latest.timestamp:
                raise CorruptIndex(f"{self._name(TIME_INDEX)} ends before {batch.max_timestamp}")
            if end_offset <= latest.offset <= batch.last_offset:
                is_true = is_true or batch.max_timestamp == latest.timestamp
            end_offset, position = batch.last_offset + 1, batch.end_position
        if position < self.size:
            raise CorruptRecord(f"{self.size - position} bytes behind the last batch")
        if not (is_true or self._is_true(latest)):
            raise CorruptIndex(f"{self._name(TIME_INDEX)} ends with {latest}")
        return end_offset

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

    def rebuild_indexes(self, reason: str) -> None:
        """Make the indexes, which do not fit the log, anew from its headers. Raises OSError."""
        logger.warning("%s/%s; the indexes are made anew", self.directory.path, reason)
        lengths = [index.file.length for index in (self.offset_index, self.time_index)]
        is_active = self.offset_index.file.is_active
        self.reset_indexes()
        files = self.offset_index.file, self.time_index.file
        for file, length in zip(files, lengths, strict=True):
            file.activate(length)
        next_offset = self.base_offset
        with contextlib.suppress(CorruptRecord):  # who reads there will say so
            for batch in scan(self.log):
                if not next_offset <= batch.last_offset <= self.base_offset + INT_MAX:
                    break
                self.index(batch, REBUILT_INTERVAL_BYTES)
                next_offset = batch.last_offset + 1
        if not is_active:
            self.seal()

    def reset_indexes(self) -> None:
        """Start over with empty indexes, to build them from the log."""
        self.offset_index, self.time_index = _no_indexes(
            self.directory, self.base_offset, self.suffix
        )
        self.latest = self.time_index.last
        self.first_timestamp = None
        self.bytes_since_index_entry = 0

    def activate(self, config: LogConfig) -> None:
        """Make it the segment that is written to: the indexes get their full length, and with
        `preallocate` a log file that is still empty the room it will fill."""
        if config.preallocate and self.size == 0 and not self.suffix:
            self.log.reserve(config.segment_bytes)
        self.offset_index.file.activate(config.segment_index_bytes)
        self.time_index.file.activate(config.segment_index_bytes)

    def seal(self) -> None:
        """Make it one that is only read, after the last append: its files end as they must."""
        self.log.trim()
        self.time_index.maybe_append(*self.latest)
        self.offset_index.file.seal()
        self.time_index.file.seal()

    def truncate_to(self, offset: int, monotonic_ms: int) -> None:
        """Cut off the batch that holds `offset`, and all behind it; the segment is active."""
        _, position = self._last_below(offset)  # by the indexes, so before they are cut
        if position < self.size:
            self.log.truncate(position)

        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if not self._ends_are_of_log():
            self.rebuild_indexes(f"{self._name(LOG)} was cut at {offset}")

        self.forget_transactions(offset)
        if self.log.size == 0:
            self.created_ms, self.first_timestamp = monotonic_ms, None
        self.bytes_since_index_entry = 0
        if self.latest.offset >= offset:
            self.reload_latest()

    def forget_transactions(self, offset: int) -> None:
        """Drop the aborted transactions that ended at `offset` or above."""
        name = file_name(self.base_offset, TRANSACTION_INDEX) + self.suffix
        truncate_transaction_index(self.directory, name, offset)
        self.aborted = None

    def reload_latest(self) -> None:
        """Find the latest timestamp: the last indexed one, or one behind the last indexed batch,
        for both indexes get their entries together, as far as that can be read."""
        self.latest = self.time_index.last
        with contextlib.suppress(CorruptRecord):  # who reads there will say so
            for batch in scan(self.log, self.offset_index.last().position):
                if batch.max_timestamp > self.latest.timestamp:
                    self.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)

    def files_to_flush(self) -> list[StorageFile]:
        """The files to fsync; the indexes once it is sealed, for until then recovery makes them."""
        files = [self.log] if self.aborted is None else [self.log, self.aborted]
        if self.offset_index.file.is_active:
            return files
        return [*files, self.offset_index.file.file(), self.time_index.file.file()]

    def rename_files(self, suffix: str) -> list[str]:
        """Add `suffix` to the names of all its files; the new names. Readers keep theirs."""
        renamed = []
        for kind in ALL_SUFFIXES:
            name = file_name(self.base_offset, kind)
            if self.directory.size(name) is not None:
                self.directory.rename(name, name + suffix)
                renamed.append(name + suffix)
        return renamed

    def _name(self, kind: str) -> str:
        return file_name(self.base_offset, kind) + self.suffix

    def _ends_are_of_log(self) -> bool:
        """Whether what comes next can be indexed behind the last entries: they are true. Who looks
        up an entry before them checks that one himself."""
        offsets, times = self.offset_index, self.time_index
        return (offsets.is_proven or self._is_of_log(offsets.last())) and (
            times.is_proven or self._is_true(times.last)
        )

    def _is_of_log(self, entry: OffsetPosition) -> bool:
        """Whether there is a batch at the position, with offsets that go up to the entry's or
        less, and one that goes on from it: what a search that starts there needs."""
        if entry.position <= 0:
            return entry.position == 0
        batches = scan(self.log, entry.position)
        try:
            first, second = next(batches, None), next(batches, None)
            if first is None or first.base_offset < self.base_offset:
                return False
            if not begins_at_or_below(entry.offset, self.log, first):
                return False
        except CorruptRecord:
            return False
        return second is None or second.base_offset > first.last_offset

    def _is_true(self, entry: TimestampOffset, may_rebuild: bool = True) -> bool:
        """Whether the batch that holds the offset has this latest timestamp, so that what is later
        lies behind it."""
        if entry.timestamp < 0:
            return entry.offset == self.base_offset
        try:
            batch = self.find(entry.offset, may_rebuild=may_rebuild)
        except CorruptRecord:
            return False
        is_of_log = batch is not None and batch.max_timestamp == entry.timestamp
        return is_of_log and self.time_index.is_in_order(entry)

    def read_first_timestamp(self) -> int:
        """The latest timestamp in its first batch, -1 without any; it is read only once."""
        if self.first_timestamp is None:
            first = next(scan(self.log), None)
            self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        return self.first_timestamp

    def _jitter_ms(self, config: LogConfig) -> int:
        """A part of segment.jitter.ms that differs from log to log and segment to segment."""
        most = min(config.segment_jitter_ms, config.max_segment_ms)
        return (
            zlib.crc32(f"{self.directory.name}/{self.base_offset}".encode()) % most if most else 0
        )


def _log_file(directory: Directory, base_offset: int, suffix: str = "") -> StorageFile:
    file = directory.open_segment(file_name(base_offset, LOG) + suffix)
    if file.size > INT_MAX:  # an index entry could not name a position behind
        raise ValueError(f"segment {base_offset} has {file.size} bytes, more than {INT_MAX}")
    return file


def _no_indexes(
    directory: Directory, base_offset: int, suffix: str
) -> tuple[OffsetIndex, TimeIndex]:
    return (
        OffsetIndex.create(directory, file_name(base_offset, INDEX) + suffix, base_offset),
        TimeIndex.create(directory, file_name(base_offset, TIME_INDEX) + suffix, base_offset),
    )
