"""The indexes of a segment, read from their files and held against the segment's log.

An index of the active segment is as long as it may ever get, and its entries are followed by zeros.
Neither index can begin with an entry of zeros of which its log knows nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from struct import Struct
from typing import NamedTuple

from broker.kbroker.log.entries import Entry, entries
from broker.kbroker.log.records import records
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


def raw_entries(
    file: ReadableFile, layout: Struct, count: int | None = None
) -> Iterator[tuple[int, ...]]:
    """The first `count` entries of an index; without, all that are whole, those of zeros too."""
    end = (file.size // layout.size if count is None else count) * layout.size
    step = READ_ENTRIES * layout.size
    for start in range(0, end, step):
        data = file.read(start, min(step, end - start))
        yield from layout.iter_unpack(data[: len(data) // layout.size * layout.size])


def offset_entries(file: ReadableFile, base_offset: int) -> Iterator[OffsetPosition]:
    """The entries of a `.index`, as many as there are now: it may be in use.

    No entry is ever made for position 0, so that one of zeros is none wherever it stands.
    """
    found = raw_entries(file, OFFSET_LAYOUT, entry_count(file, OFFSET_LAYOUT))
    return (
        OffsetPosition(base_offset + relative, position)
        for relative, position in takewhile(any, found)
    )


def time_entries(file: ReadableFile, base_offset: int) -> Iterator[TimestampOffset]:
    """The entries of a `.timeindex`, as many as there are now: it may be in use.

    The first of them may be of time 0 at the base offset. Whether it is one, or but the room for
    one, only the log tells.
    """
    count = max(entry_count(file, TIME_LAYOUT), min(file.size // TIME_LAYOUT.size, 1))
    found = enumerate(raw_entries(file, TIME_LAYOUT, count))
    return (
        TimestampOffset(timestamp, base_offset + relative)
        for number, (timestamp, relative) in takewhile(
            lambda each: not each[0] or each[1][1], found
        )
    )


def aborted_transactions(file: ReadableFile) -> Iterator[AbortedTransaction]:
    """The entries of a `.txnindex`. Raises CorruptIndex for one of another version."""
    for version, *fields in raw_entries(file, transaction_index.ENTRY):
        if version != transaction_index.VERSION:
            raise CorruptIndex(f"an entry is of version {version}, which is not known")
        yield AbortedTransaction(*fields)


def entry_count(file: ReadableFile, layout: Struct) -> int:
    """How many entries stand before the zeros at a file's end, without reading them all."""

    def is_room(slot: int) -> bool:
        return not any(file.read(slot * layout.size, layout.size))

    return bisect_left(range(file.size // layout.size), True, key=is_room)


def check_offset_index(file: ReadableFile, base_offset: int) -> None:
    """What a broker checks of a `.index` as it starts. Raises CorruptIndex."""
    _check_length(file, OFFSET_LAYOUT)
    found = offset_entries(file, base_offset)
    first = next(found, None)
    last = next(iter(deque(found, 1)), first)
    if first is not None and last is not None and last.offset < max(base_offset, first.offset):
        raise CorruptIndex(f"its last offset is {last.offset}, after {first.offset}")


def check_time_index(file: ReadableFile, base_offset: int) -> None:
    """What a broker checks of a `.timeindex` as it starts. Raises CorruptIndex."""
    _check_length(file, TIME_LAYOUT)
    found = time_entries(file, base_offset)
    first = next(found, None)
    last = next(iter(deque(found, 1)), first)
    if first is None or last is None:
        return
    if last.offset < base_offset or last.timestamp < first.timestamp:
        raise CorruptIndex(f"it ends with {tuple(last)}, after {tuple(first)}")


def _check_length(file: ReadableFile, layout: Struct) -> None:
    if file.size % layout.size:
        raise CorruptIndex(f"its {file.size} bytes are no multiple of {layout.size}")


# Against the log


class JudgedPosition(NamedTuple):
    """An entry of an offset index. `log_offset` is None if it is true, otherwise the last offset
    of the batch at its position, -1 where there is no batch."""

    entry: OffsetPosition
    log_offset: int | None


class JudgedTime(NamedTuple):
    """An entry of a time index, and what speaks against it, None for what does not.

    `found_offset`: no batch has the offset, the next one ends with this; -1 if there is none.
    `log_timestamp`: the latest time in the batch, which is another. `earlier`: the time of the
    entry before, which is not earlier.
    """

    entry: TimestampOffset
    found_offset: int | None = None
    log_timestamp: int | None = None
    earlier: int | None = None

    @property
    def is_true(self) -> bool:
        """Whether nothing speaks against it."""
        return self[1:] == (None, None, None)


class LogWalk:
    """The batches of a log from its first on, as far as they are to be told from garbage."""

    def __init__(self, log: ReadableFile) -> None:
        self.log = log
        self._restart()

    def _restart(self) -> None:
        self._ahead = _believable(self.log, 0)
        self.batch = next(self._ahead, None)

    def at(self, position: int) -> ShallowBatch | None:
        """The batch that begins just there."""
        if self.batch is None or self.batch.position > position:
            self._restart()
        while self.batch is not None and self.batch.position < position:
            self.batch = next(self._ahead, None)
        found = self.batch
        return found if found is not None and found.position == position else None

    def ending_from(self, offset: int) -> ShallowBatch | None:
        """The first batch, from where the walk is, whose last offset is `offset` or above."""
        while self.batch is not None and self.batch.last_offset < offset:
            self.batch = next(self._ahead, None)
        return self.batch

    def whole(self, batch: ShallowBatch) -> Entry:
        """All of a batch."""
        return next(entries(self.log, batch.position, batch.end_position))


def judged_positions(
    found: Iterable[OffsetPosition], log: ReadableFile
) -> Iterator[JudgedPosition]:
    """The entries of a `.index`, held against its log, which was opened after they were read.

    One is true if it names an offset of the batch at its position: the last, or the first as
    older releases wrote. Or the last one of a later batch: a replica appends many batches at once,
    and indexes where the last of them ends at the first one's position.
    """
    walk = LogWalk(log)
    for entry in found:
        batch = walk.at(entry.position)
        if batch is None:
            there = next(_believable(log, entry.position), None)
            yield JudgedPosition(entry, NOT_FOUND if there is None else there.last_offset)
            continue
        if entry.offset > batch.last_offset:
            last = walk.ending_from(entry.offset)
            is_true = last is not None and last.last_offset == entry.offset
        else:
            is_true = entry.offset >= _first_offset(walk, batch)
        yield JudgedPosition(entry, None if is_true else batch.last_offset)


def judged_times(
    found: Iterable[TimestampOffset], log: ReadableFile, base_offset: int
) -> Iterator[JudgedTime]:
    """The entries of a `.timeindex`, held against its log, which was opened after they were read.

    One is true if it names an offset of a batch and its time: the last offset, or as leaders of
    Kafka write it, that of the record which has the time. The time of a batch is the latest of its
    records'; of one that compaction left without any, what its header says.
    """
    walk = LogWalk(log)
    before = TimestampOffset(NO_TIMESTAMP, base_offset)
    for entry in found:
        if entry.offset < before.offset:
            walk = LogWalk(log)
        judged = _judged_time(walk, entry, before.timestamp)
        if entry == (0, base_offset) and not judged.is_true:
            return  # room for entries
        yield judged
        before = entry


def _judged_time(walk: LogWalk, entry: TimestampOffset, earlier: int) -> JudgedTime:
    batch = walk.ending_from(entry.offset)
    if batch is None:
        return JudgedTime(entry, NOT_FOUND)
    whole = walk.whole(batch)
    found = records(whole)
    first_offset = found[0].offset if batch.magic < 2 else batch.base_offset
    if entry.offset < first_offset:
        return JudgedTime(entry, batch.last_offset)
    latest = max((record.timestamp for record in found), default=whole.header.max_timestamp)
    return JudgedTime(
        entry,
        log_timestamp=None if latest == entry.timestamp else latest,
        earlier=earlier if earlier >= entry.timestamp else None,
    )


def _first_offset(walk: LogWalk, batch: ShallowBatch) -> int:
    """Where a batch begins; a message of the formats before has to be opened for it."""
    if batch.magic >= 2:
        return batch.base_offset
    return records(walk.whole(batch))[0].offset


def _believable(log: ReadableFile, start: int) -> Iterator[ShallowBatch]:
    if start < 0:  # as an index may say
        return
    try:
        yield from scan(log, start)
    except CorruptRecord:
        return
