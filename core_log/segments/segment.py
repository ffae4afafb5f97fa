"""A segment: one file of batches and its two indexes, named by the first offset it may hold.

    00000000000000001200.log  .index  .timeindex

The last segment of a log is active: it alone is written to, and its indexes have their full length.
An index entry is due when more than index.interval.bytes were appended since the last one. That is
decided before the append, and the entry points at its start, so a search never walks much further.
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
    IndexBytes,
    collect_aborted,
    truncate_transaction_index,
)
from core_log.storage import BytesLike, Directory, ReadableFile, StorageFile
from protocol.frozen import frozen
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP

# The default of index.interval.bytes: a rebuild has no settings at hand.
REBUILT_INTERVAL_BYTES = 4096

logger = logging.getLogger(__name__)


class BadIndex(Exception):
    """A look-up found an index of `segment` that does not fit its log, and may not rebuild it.

    A rebuild reads the segment whole.
    """

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"segment {segment.base_offset}: {segment.bad_index}")
        self.segment = segment


@frozen
class HeldFiles:
    """Facts about a segment from files that are found by their names."""

    modified_ms: int
    transaction_index: IndexBytes


@attrs.define(eq=False)
class Segment:
    """One segment of a log, open for reading; the active one also for writing.

    `latest` is the latest timestamp of its records, with the last offset of the batch that has it.
    `first_timestamp` is that of its first batch, None until it is known.
    """

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
    transaction_index: StorageFile | None = None
    """The `.txnindex` file, if entries were added to it since the segment was opened."""
    has_aborted: bool = True
    """False if it is known that it has no `.txnindex` file: nearly all segments have none."""
    bad_index: str | None = None
    """Why its indexes are bad, until they are rebuilt."""
    _held: HeldFiles | None = None
    # What `should_roll` has found out under these settings: the segment may grow to so many bytes,
    # with timestamps up to this one. None: it has to look.
    _limits_of: LogConfig | None = None
    _most_bytes: int = 0
    _last_timestamp: int = 0

    @classmethod
    def create(
        cls, directory: Directory, base_offset: int, monotonic_ms: int, suffix: str = ""
    ) -> Segment:
        """Create an empty segment. Files that have its names are removed.

        A `suffix`, CLEANED, ends the names of its files while it is not part of the log.
        """
        # The indexes remove their own leftovers.
        for kind in (LOG, TRANSACTION_INDEX):
            directory.remove(file_name(base_offset, kind) + suffix)
        return cls.open_without_indexes(directory, base_offset, monotonic_ms, suffix)

    @classmethod
    def open_without_indexes(
        cls, directory: Directory, base_offset: int, monotonic_ms: int, suffix: str = ""
    ) -> Segment:
        """Open the log file. The indexes are empty and wait for recovery."""
        return cls(
            directory,
            base_offset,
            _log_file(directory, base_offset, suffix),
            *_create_indexes(directory, base_offset, suffix),
            monotonic_ms,
            TimestampOffset(NO_TIMESTAMP, base_offset),
            suffix=suffix,
        )

    @classmethod
    def load(cls, directory: Directory, base_offset: int, monotonic_ms: int) -> Segment:
        """Open a sealed segment. Raises CorruptIndex."""
        log = _log_file(directory, base_offset)
        offset_index = OffsetIndex.load(
            directory, file_name(base_offset, INDEX), base_offset, log.size
        )
        time_index = TimeIndex.load(directory, file_name(base_offset, TIME_INDEX), base_offset)
        # A sealed time index ends with the latest timestamp of all.
        return cls(
            directory, base_offset, log, offset_index, time_index, monotonic_ms, time_index.last
        )

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.log.size

    @property
    def largest_timestamp(self) -> int:
        """Latest timestamp of a record in ms; without any, the time of the last write."""
        if self.latest.timestamp >= 0:
            return self.latest.timestamp
        return self.modified_ms

    @property
    def modified_ms(self) -> int:
        """Time when the log file was last written to."""
        if self._held is not None:
            return self._held.modified_ms
        return self.directory.modified_ms(file_name(self.base_offset, LOG) + self.suffix)

    def hold(self) -> None:
        """Keep all that is read of a sealed segment readable when its files lose their names.

        Raises OSError.
        """
        self.log.hold()
        self.offset_index.file.hold()
        self.time_index.file.hold()
        index = self._open_transaction_index()
        self._held = HeldFiles(self.modified_ms, IndexBytes(index.read(0, index.size)))

    def aborted_transactions(
        self, offset: int, end_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Collect those aborted in it with records from `offset` to `end_offset`.

        The second value says whether later segments have no more of them. Raises OSError and
        CorruptIndex.
        """
        if not self.has_aborted:
            return [], False
        index = self._open_transaction_index()
        return collect_aborted(index, self._name(TRANSACTION_INDEX), offset, end_offset)

    def _open_transaction_index(self) -> ReadableFile:
        if self._held is not None:
            return self._held.transaction_index
        # A file that is open need not be looked up, as each fetch of committed data would.
        if self.transaction_index is not None:
            # A fetch looks at some of it (fault strangers-13).
            return self.transaction_index
        index = self.directory.read(self._name(TRANSACTION_INDEX))
        self.has_aborted = index is not None
        return IndexBytes(index or b"")

    def offset_behind(self, position: int) -> int | None:
        """Return an offset that no batch before `position` has, by the index; None: all may."""
        entry = self.offset_index.first_from(position)
        if entry is None or self.offset_index.is_proven or self._points_at_batch(entry):
            return None if entry is None else entry.offset
        return None

    # Writing

    def should_roll(
        self,
        config: LogConfig,
        size: int,
        last_offset: int,
        max_timestamp: int,
        monotonic_ms: Callable[[], int],
    ) -> bool:
        """Return whether a new segment must begin before `size` bytes are appended.

        Time is judged by the first batch's timestamp against the new one's, and by the clock only
        if the first batch has none (KAFKA-4099). An empty segment is never rolled onto itself
        (KAFKA-6388); it only gives way to offsets that it cannot index.
        """
        # An index entry has 31 bits for the distance from the base.
        if last_offset - self.base_offset > INT_MAX:
            return True
        bytes_before = self.log.size
        if bytes_before == 0:
            return False

        # Nearly always it is within the limits.
        if config is self._limits_of:
            return bytes_before + size > self._most_bytes or max_timestamp > self._last_timestamp

        if self.offset_index.is_full or self.time_index.is_full:
            return True
        max_age_ms = config.max_segment_ms - self._jitter_ms(config)
        started = self.read_first_timestamp()
        if started < 0:
            is_old = monotonic_ms() - self.created_ms > max_age_ms
            return is_old or bytes_before + size > config.segment_bytes

        self._limits_of = config
        self._most_bytes = config.segment_bytes
        self._last_timestamp = started + max_age_ms
        return bytes_before + size > self._most_bytes or max_timestamp > self._last_timestamp

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
        log = self.log
        position = log.size
        latest_before = self.latest
        size = sum(map(len, buffers))
        assert position + size <= INT_MAX
        assert 0 <= last_offset - self.base_offset <= INT_MAX
        log.append(buffers)

        # `should_roll` counts the segment's age from its first write.
        if position == 0:
            self.first_timestamp = latest.timestamp
        if latest.timestamp > latest_before.timestamp:
            self.latest = latest

        # An entry that cannot be written takes the batches back. The first ones never get one.
        if self.bytes_since_index_entry > index_interval_bytes:
            try:
                self.add_index_entry(last_offset, position)
            except OSError:
                log.truncate(position)
                self.latest = latest_before
                raise

        self.bytes_since_index_entry += size

    def add_index_entry(self, offset: int, position: int) -> None:
        """Index the batches at `position` that end with `offset`. Raises OSError."""
        self.offset_index.append(offset, position)
        # Either both indexes get an entry, or neither.
        try:
            self.time_index.maybe_append(*self.latest)
        except OSError:
            self.offset_index.remove_last()
            raise
        self.bytes_since_index_entry = 0
        # They may be full now, which matters in the active segment alone.
        if self._limits_of and (self.offset_index.is_full or self.time_index.is_full):
            self._limits_of = None

    def index(self, batch: ShallowBatch, index_interval_bytes: int) -> None:
        """Index the next batch of the log file."""
        if batch.max_timestamp > self.latest.timestamp:
            self.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)
        if self.bytes_since_index_entry > index_interval_bytes:
            self.add_index_entry(batch.last_offset, batch.position)
        self.bytes_since_index_entry += batch.size

    # Looking up

    def find(self, offset: int, start: int = 0, *, may_rebuild: bool = True) -> ShallowBatch | None:
        """Find the first batch at or behind position `start` with `offset` or a later one.

        Raises CorruptRecord and, if an index is bad and `may_rebuild` is not set, BadIndex.
        """
        position = max(start, self.position_before(offset, may_rebuild=may_rebuild))
        before = self.base_offset - 1
        for batch in scan(self.log, position):
            if batch.last_offset >= offset:
                return batch
            if batch.last_offset <= before:
                raise CorruptRecord(f"offset {batch.last_offset} is out of order")
            position = batch.end_position
            before = batch.last_offset

        # Without this error the file's last offsets would seem to be in no segment.
        if position < self.size:
            raise CorruptRecord(f"the batch at position {position} reaches over the file's end")
        return None

    def end_below(self, offset: int) -> int:
        """Return the end of the last batch wholly below `offset`, or the base offset."""
        return self._last_below(offset)[0]

    def _last_below(self, offset: int) -> tuple[int, int]:
        """Find the end offset and end position of the last batch wholly below `offset`.

        The search ends at damage: whoever truncates the segment there removes the damage too.
        """
        # Search from the indexed position; if nothing there is below, from the start.
        for start in (self.position_before(offset - 1), 0):
            end_offset = self.base_offset
            position = 0
            with contextlib.suppress(CorruptRecord):
                for batch in scan(self.log, start):
                    if batch.last_offset >= offset:
                        break
                    end_offset = batch.last_offset + 1
                    position = batch.end_position
            if position > 0:
                break
        return end_offset, position

    def position_before(self, offset: int, *, may_rebuild: bool = True) -> int:
        """Return the position, by the index, where a search for `offset` begins.

        Raises BadIndex for a bad index unless `may_rebuild` is set.
        """
        if self.bad_index is not None:
            self._rebuild(may_rebuild)
        entry = self.offset_index.lookup(offset)

        # An entry of a file that was found is believed only if the log confirms it.
        if not self.offset_index.is_proven and not self._points_at_batch(entry):
            self.bad_index = f"{self._name(INDEX)} has {entry}"
            self._rebuild(may_rebuild)
            entry = self.offset_index.lookup(offset)
        return entry.position

    def position_before_time(self, timestamp: int, offset: int, *, may_rebuild: bool = True) -> int:
        """Return the position, by the indexes, where a search for a time begins.

        The search is for the first record from `offset` on that is not earlier than `timestamp`.
        Raises BadIndex like `position_before`.
        """
        if self.bad_index is not None:
            self._rebuild(may_rebuild)
        entry = self.time_index.lookup(timestamp)

        # As in `position_before`, the log must confirm the entry.
        if not self.time_index.is_proven and not self._fits_log(entry, may_rebuild):
            self.bad_index = f"{self._name(TIME_INDEX)} has {entry}"
            self._rebuild(may_rebuild)
            entry = self.time_index.lookup(timestamp)

        # Batches before the entry's own are earlier than its timestamp.
        return self.position_before(max(entry.offset, offset), may_rebuild=may_rebuild)

    # Checking and rebuilding the indexes

    def _rebuild(self, may_rebuild: bool) -> None:
        if not may_rebuild:
            raise BadIndex(self)
        self.rebuild_bad_indexes()

    def rebuild_bad_indexes(self) -> None:
        """Rebuild the indexes if they are known to be bad. Raises OSError."""
        if self.bad_index is not None:
            self.rebuild_indexes(self.bad_index)
            self.bad_index = None

    def check_end(self) -> int:
        """Check that the indexes of a loaded segment end where its log does.

        Returns `next_offset`. Raises CorruptIndex and CorruptRecord.
        """
        indexed = self.offset_index.last()
        latest = self.time_index.last
        if not self._points_at_batch(indexed):
            raise CorruptIndex(f"{self._name(INDEX)} ends with {indexed}")

        # Walk the batches behind the last entry, and meet the latest timestamp if it is there.
        end_offset = self.base_offset
        position = indexed.position
        is_confirmed = latest.timestamp < 0
        for batch in scan(self.log, indexed.position):
            if batch.base_offset < end_offset:
                raise CorruptRecord(f"offset {batch.base_offset} is out of order")
            # The last entry of a sealed time index names the latest timestamp.
            if batch.max_timestamp > latest.timestamp:
                raise CorruptIndex(f"{self._name(TIME_INDEX)} ends before {batch.max_timestamp}")
            if end_offset <= latest.offset <= batch.last_offset:
                is_confirmed = is_confirmed or batch.max_timestamp == latest.timestamp
            end_offset = batch.last_offset + 1
            position = batch.end_position

        if position < self.size:
            raise CorruptRecord(f"{self.size - position} bytes behind the last batch")
        # The latest timestamp may lie before the last indexed batch.
        if not (is_confirmed or self._fits_log(latest)):
            raise CorruptIndex(f"{self._name(TIME_INDEX)} ends with {latest}")
        return end_offset

    def next_offset(self) -> int:
        """Return one above its last offset, or the base offset if it is empty.

        Raises CorruptRecord if the file does not end with a whole batch.
        """
        offset = self.base_offset
        position = self.offset_index.last().position
        for batch in scan(self.log, position):
            offset = batch.last_offset + 1
            position = batch.end_position
        if position != self.size:
            raise CorruptRecord(f"{self.size - position} bytes behind the last batch")
        return offset

    def rebuild_indexes(self, reason: str) -> None:
        """Rebuild indexes that do not fit the log from its headers. Raises OSError."""
        logger.warning("%s/%s; the indexes are rebuilt", self.directory.path, reason)

        # Keep the length of the files: that of active indexes includes free slots.
        lengths = [index.file.length for index in (self.offset_index, self.time_index)]
        is_active = self.offset_index.file.is_active
        self.reset_indexes()
        files = self.offset_index.file, self.time_index.file
        for file, length in zip(files, lengths, strict=True):
            file.activate(length)

        next_offset = self.base_offset
        with contextlib.suppress(CorruptRecord):  # whoever reads there reports it
            for batch in scan(self.log):
                # Behind an offset that goes back nothing could be looked up.
                if not next_offset <= batch.last_offset <= self.base_offset + INT_MAX:
                    break
                self.index(batch, REBUILT_INTERVAL_BYTES)
                next_offset = batch.last_offset + 1

        if not is_active:
            self.seal()

    def reset_indexes(self) -> None:
        """Start again with empty indexes, to build them from the log."""
        self.offset_index, self.time_index = _create_indexes(
            self.directory, self.base_offset, self.suffix
        )
        self.latest = self.time_index.last
        self.first_timestamp = None
        self.bytes_since_index_entry = 0
        self._limits_of = None

    # Becoming active, sealed or shorter

    def activate(self, config: LogConfig) -> None:
        """Make this the segment that is written to.

        The indexes get their full length. With `preallocate` an empty log file gets the room that
        it will fill.
        """
        if config.preallocate and self.size == 0 and not self.suffix:
            self.log.reserve(config.segment_bytes)
        self.offset_index.file.activate(config.segment_index_bytes)
        self.time_index.file.activate(config.segment_index_bytes)
        self._limits_of = None

    def seal(self) -> None:
        """Close the segment to appends: its files end with their contents."""
        self.log.trim()
        # A slot is kept free for this entry.
        self.time_index.maybe_append(*self.latest)
        self.offset_index.file.seal()
        self.time_index.file.seal()

    def truncate_to(self, offset: int, monotonic_ms: int) -> None:
        """Truncate the active segment before the batch that holds `offset`."""
        _, position = self._last_below(offset)  # reads the indexes, so before they are truncated
        if position < self.size:
            self.log.truncate(position)

        # Entries that are left must fit the log before others follow them.
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        if not self._index_ends_fit_log():
            self.rebuild_indexes(f"{self._name(LOG)} was truncated at {offset}")

        self.truncate_transactions(offset)
        # An empty segment is as young as a new one.
        if self.log.size == 0:
            self.created_ms = monotonic_ms
            self.first_timestamp = None
        self.bytes_since_index_entry = 0
        self._limits_of = None
        # The batch with the latest timestamp is gone.
        if self.latest.offset >= offset:
            self.reload_latest()

    def truncate_transactions(self, offset: int) -> None:
        """Delete the aborted transactions that ended at `offset` or above."""
        name = file_name(self.base_offset, TRANSACTION_INDEX) + self.suffix
        truncate_transaction_index(self.directory, name, offset)
        # The open file may be one that was just removed.
        self.transaction_index = None

    def reload_latest(self) -> None:
        """Find the latest timestamp, as far as the log can be read.

        It is the last indexed one, or one behind the last indexed batch, for both indexes get
        their entries together.
        """
        self.latest = self.time_index.last
        with contextlib.suppress(CorruptRecord):  # whoever reads there reports it
            for batch in scan(self.log, self.offset_index.last().position):
                if batch.max_timestamp > self.latest.timestamp:
                    self.latest = TimestampOffset(batch.max_timestamp, batch.last_offset)

    # Files

    def files_to_flush(self) -> list[StorageFile]:
        """List the files to fsync: sealed indexes too, for recovery rebuilds only active ones."""
        files = [self.log]
        if self.transaction_index is not None:
            files.append(self.transaction_index)
        if self.offset_index.file.is_active:
            return files
        return [*files, self.offset_index.file.file(), self.time_index.file.file()]

    def rename_files(self, suffix: str) -> list[str]:
        """Add `suffix` to the names of all its files. Returns the new names. Raises OSError.

        Their ranges stay readable until nobody refers to them.
        """
        self.log.hold()
        if self.transaction_index is not None:
            self.transaction_index.hold()

        renamed = []
        # The log file goes first: recovery removes indexes that have none.
        for kind in ALL_SUFFIXES:
            name = file_name(self.base_offset, kind)
            if self.directory.size(name) is not None:
                self.directory.rename(name, name + suffix)
                renamed.append(name + suffix)
        return renamed

    def _name(self, kind: str) -> str:
        return file_name(self.base_offset, kind) + self.suffix

    def _index_ends_fit_log(self) -> bool:
        """Return whether the last entries fit the log, so that others can follow them.

        Whoever looks up an earlier entry checks that one.
        """
        offsets = self.offset_index
        times = self.time_index
        return (offsets.is_proven or self._points_at_batch(offsets.last())) and (
            times.is_proven or self._fits_log(times.last)
        )

    def _points_at_batch(self, entry: OffsetPosition) -> bool:
        """Return whether a search for the entry's offset may start at its position.

        A batch must begin there, with offsets that go up to the entry's or less, and the batch
        behind it must go on from it.
        """
        if entry.position <= 0:
            return entry.position == 0

        batches = scan(self.log, entry.position)
        try:
            # Two batches are enough: the one that is pointed at, and the next.
            first = next(batches, None)
            second = next(batches, None)
            if first is None or first.base_offset < self.base_offset:
                return False
            if not begins_at_or_below(entry.offset, self.log, first):
                return False
        except CorruptRecord:
            return False
        return second is None or second.base_offset > first.last_offset

    def _fits_log(self, entry: TimestampOffset, may_rebuild: bool = True) -> bool:
        """Return whether the batch that holds the entry's offset has its timestamp as the latest.

        Then records with later timestamps lie behind it.
        """
        if entry.timestamp < 0:
            return entry.offset == self.base_offset
        try:
            batch = self.find(entry.offset, may_rebuild=may_rebuild)
        except CorruptRecord:
            return False
        has_timestamp = batch is not None and batch.max_timestamp == entry.timestamp
        return has_timestamp and self.time_index.is_in_order(entry)

    def read_first_timestamp(self) -> int:
        """Return the latest timestamp in its first batch, -1 without any. It is read only once."""
        if self.first_timestamp is None:
            first = next(scan(self.log), None)
            self.first_timestamp = NO_TIMESTAMP if first is None else first.max_timestamp
        return self.first_timestamp

    def _jitter_ms(self, config: LogConfig) -> int:
        """Return a part of segment.jitter.ms that differs by log and by segment."""
        most = min(config.segment_jitter_ms, config.max_segment_ms)
        if not most:
            return 0

        # A checksum stands in for chance: it is the same at every call.
        return zlib.crc32(f"{self.directory.name}/{self.base_offset}".encode()) % most


def _log_file(directory: Directory, base_offset: int, suffix: str = "") -> StorageFile:
    file = directory.open_segment(file_name(base_offset, LOG) + suffix)
    if file.size > INT_MAX:  # an index entry could not hold a position behind that
        raise ValueError(f"segment {base_offset} has {file.size} bytes, more than {INT_MAX}")
    return file


def _create_indexes(
    directory: Directory, base_offset: int, suffix: str
) -> tuple[OffsetIndex, TimeIndex]:
    return (
        OffsetIndex.create(directory, file_name(base_offset, INDEX) + suffix, base_offset),
        TimeIndex.create(directory, file_name(base_offset, TIME_INDEX) + suffix, base_offset),
    )
