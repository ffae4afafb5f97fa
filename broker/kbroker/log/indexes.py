"""Read the indexes of a segment from their files and compare them with the segment's log.

An index of the active segment is preallocated at full size: zeros follow its entries. An entry of
zeros at the start of an index is real only if the log has such a batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from struct import Struct
from typing import NamedTuple

from broker.kbroker.log.entries import LogEntry, read_entries
from broker.kbroker.log.records import read_records
from core_log.segments import offset_index, time_index, transaction_index
from core_log.segments.batch_scan import ShallowBatch, scan
from core_log.segments.index_file import CorruptIndex
from core_log.segments.offset_index import OffsetPosition
from core_log.segments.time_index import TimestampOffset
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import ReadableFile
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP

NOT_FOUND = -1
READ_ENTRIES = 8192

OFFSET_LAYOUT = offset_index.ENTRY
TIME_LAYOUT = time_index.ENTRY


def read_raw_entries(
    file: ReadableFile, layout: Struct, count: int | None = None
) -> Iterator[tuple[int, ...]]:
    """Yield the first `count` entries of an index; None: all whole ones, zeros included."""
    end = (file.size // layout.size if count is None else count) * layout.size
    step = READ_ENTRIES * layout.size
    for start in range(0, end, step):
        data = file.read(start, min(step, end - start))
        yield from layout.iter_unpack(data[: len(data) // layout.size * layout.size])


def read_offset_entries(file: ReadableFile, base_offset: int) -> Iterator[OffsetPosition]:
    """Yield the entries that a `.index` has now; it may be in use.

    No entry is written for position 0, so an entry of zeros is always the end.
    """
    raw_entries = read_raw_entries(file, OFFSET_LAYOUT, count_entries(file, OFFSET_LAYOUT))
    return (
        OffsetPosition(base_offset + relative, position)
        for relative, position in takewhile(any, raw_entries)
    )


def read_time_entries(file: ReadableFile, base_offset: int) -> Iterator[TimestampOffset]:
    """Yield the entries that a `.timeindex` has now; it may be in use.

    The first entry may be all zeros: time 0 at the base offset, or preallocated space. Only the log
    can tell which.
    """
    # At least one slot: the first may be an entry though it is all zeros.
    count = max(count_entries(file, TIME_LAYOUT), min(file.size // TIME_LAYOUT.size, 1))
    slots = enumerate(read_raw_entries(file, TIME_LAYOUT, count))

    # Later entries have a relative offset above 0.
    return (
        TimestampOffset(timestamp, base_offset + relative)
        for _, (timestamp, relative) in takewhile(lambda slot: not slot[0] or slot[1][1], slots)
    )


def read_aborted_transactions(file: ReadableFile) -> Iterator[AbortedTransaction]:
    """Yield the entries of a `.txnindex`. Raises CorruptIndex for an unknown version."""
    for version, *fields in read_raw_entries(file, transaction_index.ENTRY):
        if version != transaction_index.VERSION:
            raise CorruptIndex(f"an entry has the unknown version {version}")
        yield AbortedTransaction(*fields)


def count_entries(file: ReadableFile, layout: Struct) -> int:
    """Count the entries before the zeros at a file's end, by bisection."""

    def is_empty(slot: int) -> bool:
        return not any(file.read(slot * layout.size, layout.size))

    return bisect_left(range(file.size // layout.size), True, key=is_empty)


def check_offset_index(file: ReadableFile, base_offset: int) -> None:
    """Make the checks that a starting broker makes of a `.index`. Raises CorruptIndex."""
    _check_length(file, OFFSET_LAYOUT)
    offset_entries = read_offset_entries(file, base_offset)

    # A broker looks at the first entry and the last one, not between.
    first = next(offset_entries, None)
    last = next(iter(deque(offset_entries, 1)), first)
    if first is not None and last is not None and last.offset < max(base_offset, first.offset):
        raise CorruptIndex(f"its last offset is {last.offset}, after {first.offset}")


def check_time_index(file: ReadableFile, base_offset: int) -> None:
    """Make the checks that a starting broker makes of a `.timeindex`. Raises CorruptIndex."""
    _check_length(file, TIME_LAYOUT)
    time_entries = read_time_entries(file, base_offset)

    # The first entry and the last one again.
    first = next(time_entries, None)
    last = next(iter(deque(time_entries, 1)), first)
    if first is None or last is None:
        return

    if last.offset < base_offset or last.timestamp < first.timestamp:
        raise CorruptIndex(f"it ends with {tuple(last)}, after {tuple(first)}")


def _check_length(file: ReadableFile, layout: Struct) -> None:
    if file.size % layout.size:
        raise CorruptIndex(f"its size of {file.size} bytes is not a multiple of {layout.size}")


# --- comparison with the log ----------------------------------------------------------------------


class CheckedPosition(NamedTuple):
    """An entry of an offset index, compared with the log.

    `log_offset` is None if the entry is correct, else the last offset of the batch at its position,
    or -1 without a batch there.
    """

    entry: OffsetPosition
    log_offset: int | None


class CheckedTime(NamedTuple):
    """An entry of a time index, compared with the log; all fields behind it None if it is correct.

    `log_offset`: no batch holds the offset; this is the last offset of the next batch, -1 without
    one. `log_timestamp`: the batch has another latest time, this one. `previous_timestamp`: the
    entry before has this time, which is not earlier.
    """

    entry: TimestampOffset
    log_offset: int | None = None
    log_timestamp: int | None = None
    previous_timestamp: int | None = None

    @property
    def is_correct(self) -> bool:
        """True if the entry agrees with the log and with the entry before."""
        return self[1:] == (None, None, None)


class LogWalk:
    """A walk over the batches of a log, up to the first bytes that are no batch."""

    def __init__(self, log: ReadableFile) -> None:
        self.log = log
        self._restart()

    def _restart(self) -> None:
        self._ahead = _scan_valid(self.log, 0)
        self.batch = next(self._ahead, None)

    def find_at(self, position: int) -> ShallowBatch | None:
        """Return the batch that begins exactly at `position`, if there is one."""
        # Begin again: the walk is past the position, as a damaged index may have it.
        if self.batch is None or self.batch.position > position:
            self._restart()
        while self.batch is not None and self.batch.position < position:
            self.batch = next(self._ahead, None)

        if self.batch is not None and self.batch.position == position:
            return self.batch
        return None

    def find_ending_from(self, offset: int) -> ShallowBatch | None:
        """Return the first batch, from the current one on, that ends at `offset` or above."""
        while self.batch is not None and self.batch.last_offset < offset:
            self.batch = next(self._ahead, None)
        return self.batch

    def read(self, batch: ShallowBatch) -> LogEntry:
        """Read the whole batch."""
        return next(read_entries(self.log, batch.position, batch.end_position))


def check_positions(
    offset_entries: Iterable[OffsetPosition], log: ReadableFile
) -> Iterator[CheckedPosition]:
    """Compare the entries of a `.index` with its log, which must be opened after they are read.

    An entry is correct if its offset is in the batch at its position: the last offset, or the
    first as older releases wrote. The last offset of a later batch is correct too: a replica
    appends many batches at once, and pairs the last one's offset with the first one's position.
    """
    walk = LogWalk(log)
    for entry in offset_entries:
        batch = walk.find_at(entry.position)
        if batch is None:
            # The position is within a batch or behind the log; bytes may still look like a batch.
            misplaced = next(_scan_valid(log, entry.position), None)
            yield CheckedPosition(entry, NOT_FOUND if misplaced is None else misplaced.last_offset)
            continue

        # Above the batch only the end of a later one is right; within it any offset is.
        if entry.offset > batch.last_offset:
            later = walk.find_ending_from(entry.offset)
            is_correct = later is not None and later.last_offset == entry.offset
        else:
            is_correct = entry.offset >= _read_first_offset(walk, batch)
        yield CheckedPosition(entry, None if is_correct else batch.last_offset)


def check_times(
    time_entries: Iterable[TimestampOffset], log: ReadableFile, base_offset: int
) -> Iterator[CheckedTime]:
    """Compare the entries of a `.timeindex` with its log, which must be opened after they are read.

    An entry is correct if its offset is in a batch whose time it has. The offset is the last one,
    or, as Kafka's leaders write, that of the record with the time. The time of a batch is the
    latest of its records; if compaction left no record, the one in its header.
    """
    walk = LogWalk(log)
    previous = TimestampOffset(NO_TIMESTAMP, base_offset)
    for entry in time_entries:
        # Offsets go back only in a damaged index.
        if entry.offset < previous.offset:
            walk = LogWalk(log)

        checked = _check_time(walk, entry, previous.timestamp)
        if entry == (0, base_offset) and not checked.is_correct:
            return  # preallocated space
        yield checked
        previous = entry


def _check_time(walk: LogWalk, entry: TimestampOffset, previous_timestamp: int) -> CheckedTime:
    batch = walk.find_ending_from(entry.offset)
    if batch is None:
        return CheckedTime(entry, NOT_FOUND)

    whole = walk.read(batch)
    records = read_records(whole)
    first_offset = records[0].offset if batch.magic < 2 else batch.base_offset
    if entry.offset < first_offset:
        return CheckedTime(entry, batch.last_offset)

    # Compaction may leave a batch without records.
    latest = max((record.timestamp for record in records), default=whole.header.max_timestamp)
    return CheckedTime(
        entry,
        log_timestamp=None if latest == entry.timestamp else latest,
        previous_timestamp=previous_timestamp if previous_timestamp >= entry.timestamp else None,
    )


def _read_first_offset(walk: LogWalk, batch: ShallowBatch) -> int:
    """Return the batch's first offset; a message of format 0 or 1 must be decoded for it."""
    if batch.magic >= 2:
        return batch.base_offset
    return read_records(walk.read(batch))[0].offset


def _scan_valid(log: ReadableFile, start: int) -> Iterator[ShallowBatch]:
    if start < 0:  # a position from a damaged index
        return
    try:
        yield from scan(log, start)
    except CorruptRecord:
        return
