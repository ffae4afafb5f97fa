"""The segments of a log in order: how they come and go, and how offsets and times are looked up.

A fetch costs one search for its first batch (index, then a few headers). Its end is simply a size,
and may be within a batch, as a Kafka broker's response may. A consumer that keeps up needs no
search: the list remembers where recent reads ended, and that is where the next one starts.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

import attrs

from core_log.config import LogConfig
from core_log.flush import FlushState
from core_log.retention import SegmentAge
from core_log.segments.batch_scan import ShallowBatch, scan, scan_produced
from core_log.segments.deleted_files import DeletedFiles
from core_log.segments.file_name import ALL_SUFFIXES, file_name
from core_log.segments.replacement import Replacement
from core_log.segments.segment import BadIndex, Segment
from core_log.segments.time_index import TimestampOffset
from core_log.segments.transaction_index import AbortedTransaction
from core_log.storage import Directory, FileRange, StorageFile
from protocol.records.batch import decode_batch
from protocol.records.batch_header import LOG_OVERHEAD, BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry
from protocol.special_values import EARLIEST_TIME, LATEST_TIME

REMEMBERED_POSITIONS = 16
SOON_READ_BYTES = 16 * 1024
"""Batches that are larger, or compressed, are searched off the event loop."""

logger = logging.getLogger(__name__)


class LongLookUp(Exception):
    """A time cannot be found with few small reads: look it up in a thread."""


@attrs.define(eq=False)
class SegmentList:
    """At least one segment, by base offset, the last one active. The log ends at `end_offset`.

    The set of segments is on disk before it changes again. Otherwise a power loss might leave a
    segment without those before it, a hole in the log (`FlushState.make_names_safe`).
    """

    directory: Directory
    segments: list[Segment]
    end_offset: int
    flushes: FlushState
    _positions: dict[int, tuple[Segment, int]] = attrs.field(factory=dict)
    _deleted_files: DeletedFiles = attrs.field(init=False)

    @_deleted_files.default
    def _none_deleted(self) -> DeletedFiles:
        return DeletedFiles(self.directory)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)

    def __len__(self) -> int:
        return len(self.segments)

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self.segments[0]

    @property
    def active(self) -> Segment:
        """The segment that is written to."""
        return self.segments[-1]

    # Changing the set

    def begin(self, base_offset: int, config: LogConfig, monotonic_ms: int) -> None:
        """Add a new active segment behind the others. Raises OSError."""
        assert not self.segments or base_offset > self.active.base_offset
        self.flushes.make_names_safe(self.directory)
        try:
            segment = Segment.create(self.directory, base_offset, monotonic_ms)
            segment.activate(config)
        except OSError:
            self._remove_files(base_offset)
            raise

        # Its predecessor is closed: the next flush syncs that one's indexes too.
        self.segments.append(segment)
        self.flushes.name_changes += 1
        self.flushes.has_closed = True

    def _remove_files(self, base_offset: int) -> None:
        """Remove what there is of a segment that could not be created: it may hold scarce room."""
        with contextlib.suppress(OSError):
            for suffix in ALL_SUFFIXES:
                self.directory.remove(file_name(base_offset, suffix))

    def remove_first(self, count: int) -> list[Segment]:
        """Take out the oldest `count` segments. The caller marks their files as deleted."""
        assert count < len(self.segments)
        removed = self.segments[:count]
        # A new list: whoever iterates goes on over the old one.
        self.segments = self.segments[count:]
        self._positions.clear()
        return removed

    def delete_later(self, names: Iterable[str], due_ms: int) -> None:
        """Remove files that are marked as deleted when they are due."""
        self._deleted_files.add(names, due_ms)

    def truncate_to(self, offset: int, config: LogConfig, monotonic_ms: int) -> None:
        """End with the batch that ends at `offset`. Raises OSError."""
        count = self.floor(offset) + 1
        if count < len(self.segments):
            self._keep(count, config, monotonic_ms)
            self.directory.fsync_dir()  # otherwise they may stand behind a shorter segment
            self.active.activate(config)
        self.active.truncate_to(offset, monotonic_ms)
        self.active.log.fsync()  # otherwise later bytes may stand among truncated ones
        self.end_at(offset)

    def end_below(self, offset: int) -> int:
        """Return where the log ends below the batch that holds `offset`, or below damage."""
        return self.segments[self.floor(offset)].end_below(offset)

    def remove_all(self, config: LogConfig, monotonic_ms: int) -> None:
        """Take out all segments. The caller begins a new one. Raises OSError."""
        self._keep(0, config, monotonic_ms)

    def begin_replacement(self, replaced: Sequence[int], monotonic_ms: int) -> Replacement | None:
        """Begin to put the `.cleaned` files of the first of `replaced` in the place of all.

        `replaced` are base offsets. Returns None unless these segments follow each other here and
        none is active.
        """
        number = self.floor(replaced[0])
        originals = self.segments[number : number + len(replaced)]
        is_here = [original.base_offset for original in originals] == list(replaced)
        if not is_here or originals[-1] is self.active:
            return None
        return Replacement(originals, monotonic_ms)

    def end_replacement(self, replacement: Replacement, removal_ms: int) -> None:
        """Go on with the copy that `replacement.run` has put in place.

        The originals' files are removed at `removal_ms`.
        """
        originals = replacement.originals
        # Appends may have begun new segments behind them since.
        number = self.segments.index(originals[0])
        behind = self.segments[number + len(originals) :]
        self.segments = [*self.segments[:number], replacement.copy, *behind]
        self.flushes.name_changes += 1
        self._positions.clear()
        self._deleted_files.add(replacement.renamed, removal_ms)

    def take_due(self, monotonic_ms: int) -> list[str]:
        """Take the names of the files that are due for removal."""
        return self._deleted_files.take_due(monotonic_ms)

    # Looking up and reading

    def files_to_flush(self, offset: int) -> list[StorageFile]:
        """List the files to fsync, from the segment that holds `offset` on."""
        unflushed = self.segments[self.floor(offset) :]
        return [file for segment in unflushed for file in segment.files_to_flush()]

    def floor(self, offset: int) -> int:
        """Return the number of the last segment that starts at or below `offset`, or 0."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def reread_from(self, recovery_point: int) -> int:
        """Return the first base offset that may be read again: unflushed, or the last two."""
        oldest = min(self.floor(recovery_point), max(0, len(self.segments) - 2))
        return self.segments[oldest].base_offset

    def end_at(self, offset: int) -> None:
        """Set the log's end after a truncation, and forget the positions of reads."""
        self.end_offset = offset
        self._positions.clear()

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> FileRange | None:
        """Return bytes of one segment, from the batch that holds `offset` or the next one on.

        They stay below `end_offset`. If the first batch is larger than `max_bytes`, it is returned
        whole with `min_one` and not at all without. Like all look-ups for readers this raises
        BadIndex.
        """
        segment, position = self._locate(offset)
        end_segment, end_position = self._locate(end_offset)
        # A response has bytes of one segment.
        if end_segment is not segment:
            end_position = segment.size

        # Cut at the size that was asked for, but not within the first batch.
        available = end_position - position
        size = min(available, max_bytes)
        if size < available:
            first = _batch_size(segment, position)
            if size < first:
                size = min(available, first) if min_one else 0

        # A reader that got everything asks for this offset next.
        if size == available:
            self._remember(end_offset, segment, end_position)
        return segment.log.range(position, size) if size > 0 else None

    def bytes_between(self, offset: int, end_offset: int, enough: int) -> int:
        """Count the bytes of the batches from `offset` up to `end_offset`, or to the log's end.

        The count may stop once it has reached `enough`.
        """
        if offset >= end_offset:
            return 0
        first, position = self._locate(offset)
        # Whoever counts reads from here next (fault strangers-10).
        self._remember(offset, first, position)
        last, end_position = self._locate(end_offset)
        if first is last:
            return end_position - position

        # Add whole segments up to the last one.
        count = first.size - position
        for segment in self.segments[self.floor(first.base_offset) + 1 :]:
            if segment is last:
                return count + end_position
            if count >= enough:
                break
            count += segment.size
        return count

    def batches_at_or_after(
        self, timestamp: int, start_offset: int, most_walked: int | None = None
    ) -> Iterator[FileRange]:
        """Find the batches that may hold the first record not earlier than `timestamp`.

        Records below `start_offset` do not count. As a rule the first batch has the record (see
        `find_record`). Raises LongLookUp instead of passing more than `most_walked` batches.
        """
        walked = itertools.count()
        for segment in self._segments_at_or_after(timestamp, start_offset):
            position = segment.position_before_time(timestamp, start_offset, may_rebuild=False)
            for batch in scan(segment.log, position):
                is_far = most_walked is not None and next(walked) >= most_walked
                # The time index has no entry where times do not grow (fault core-R3).
                if is_far:
                    raise LongLookUp
                if _may_hold(batch, timestamp, start_offset):
                    yield segment.log.range(batch.position, batch.size)

    def first_at_or_after(
        self, timestamp: int, start_offset: int
    ) -> tuple[StorageFile, int, int] | None:
        """Find the first segment with a record from `start_offset` on not earlier than `timestamp`.

        Returns its file, the position to search from, and where the next segment begins.
        """
        for segment in self._segments_at_or_after(timestamp, start_offset):
            position = segment.position_before_time(timestamp, start_offset, may_rebuild=False)
            following = self.segments[self.floor(segment.base_offset) + 1 :]
            return segment.log, position, following[0].base_offset if following else self.end_offset
        return None

    def _segments_at_or_after(self, timestamp: int, start_offset: int) -> Iterator[Segment]:
        for segment in self.segments[self.floor(start_offset) :]:
            if segment.bad_index is not None:  # its latest timestamp may be wrong, too
                raise BadIndex(segment)
            # Producers set the times, so any later segment may have earlier ones.
            if segment.largest_timestamp >= timestamp:
                yield segment

    def aborted_transactions(self, offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Collect the aborted transactions with records from `offset` to `end_offset`.

        A transaction is listed in the segment where it ended, which may be a later one. Raises
        OSError and CorruptIndex.
        """
        transactions: list[AbortedTransaction] = []
        for segment in self.segments[self.floor(offset) :]:
            of_segment, is_complete = segment.aborted_transactions(offset, end_offset)
            transactions += of_segment
            if is_complete:
                break
        return transactions

    def offset_behind(self, offset: int, data: FileRange) -> int:
        """Return an offset that no batch of `data` has, which was read from `offset` on.

        It is near the end of the data, by the index.
        """
        number = self.floor(offset)
        # A read goes on in the next segment where the first one has nothing more.
        for segment, following in zip_longest(self.segments[number:], self.segments[number + 1 :]):
            if segment.log is data.file:
                behind = segment.offset_behind(data.start + data.size)
                if behind is not None:
                    return behind
                return self.end_offset if following is None else following.base_offset
        return self.end_offset

    def produced_from(self, offset: int) -> Iterator[BatchHeader]:
        """Read the headers of the batches from `offset` on that name their producer.

        A damaged segment ends at its damage, and the log goes on with the next one.
        """
        for segment in self.segments[self.floor(offset) :]:
            try:
                for header in scan_produced(segment.log, segment.position_before(offset)):
                    if header.base_offset >= offset:
                        yield header
            except CorruptRecord as error:
                logger.error(
                    "%s: segment %d: %s", segment.directory.path, segment.base_offset, error
                )

    def last_written_by(self, time_ms: int, log_start_offset: int, now_ms: int) -> list[int]:
        """List where segments begin that were last written by `time_ms`, newest first.

        Time -1 (latest) begins with the log end offset, -2 (earliest) is the log start alone.
        """
        times = [
            (max(segment.base_offset, log_start_offset), segment.modified_ms)
            for segment in self.segments
        ]
        # The log's end counts as written at `now_ms`, as in Kafka.
        if self.active.size:
            times.append((self.end_offset, now_ms))

        if time_ms == EARLIEST_TIME:
            times = times[:1]
        elif time_ms != LATEST_TIME:
            # Leave out the newest ones that were written later.
            while times and times[-1][1] > time_ms:
                times.pop()
        return [offset for offset, _ in reversed(times)]

    def ages(self) -> list[SegmentAge]:
        """List the facts about each segment that retention needs."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.end_offset]
        return [
            SegmentAge(end_offset, segment.size, segment.largest_timestamp)
            for segment, end_offset in zip(self.segments, ends, strict=True)
        ]

    def _keep(self, count: int, config: LogConfig, monotonic_ms: int) -> None:
        """Go on with the first `count` segments, and mark the files of the others.

        The last one goes first, so no crash leaves a hole, and each removal is on disk before the
        next one: a power loss that brought back one segment without another would leave one, too.
        Whoever iterates over the list goes on over the old one, and its files stay readable until
        nobody holds them. Those that nobody holds are closed one by one: there may be more
        segments than descriptors.
        """
        due_ms = monotonic_ms + config.file_delete_delay_ms
        last = len(self.segments) - 1
        for number in range(last, count - 1, -1):
            if number < last:
                self.directory.fsync_dir()
            self._deleted_files.mark([self.segments[number]], due_ms)
            self.segments = self.segments[:number]
        self._positions.clear()

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """Return the first batch that holds `offset` or a later one, or the log's end."""
        if offset >= self.end_offset:
            return self.active, self.active.size
        remembered = self._positions.get(offset)
        # What was a segment's end may be followed by the next segment.
        if remembered is not None and remembered[1] < remembered[0].size:
            return remembered

        # Compaction may leave no such offset in the segment: go on in the next.
        for number in range(self.floor(offset), len(self.segments)):
            batch = self.segments[number].find(offset, may_rebuild=False)
            if batch is not None:
                return self.segments[number], batch.position
        return self.active, self.active.size

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        # A dict keeps the order of insertion: the oldest goes.
        if len(self._positions) >= REMEMBERED_POSITIONS and offset not in self._positions:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = (segment, position)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _batch_size(segment: Segment, position: int) -> int:
    # All formats begin with int64 offset | int32 size.
    head = segment.log.read(position, LOG_OVERHEAD)
    return LOG_OVERHEAD + int.from_bytes(head[8:], "big")


def _may_hold(batch: ShallowBatch, timestamp: int, start_offset: int) -> bool:
    return batch.max_timestamp >= timestamp and batch.last_offset >= start_offset


def is_cheap_to_read(batch: FileRange) -> bool:
    """True if little of a batch must be read, and nothing decompressed. Raises CorruptRecord."""
    if batch.size > SOON_READ_BYTES or not batch.is_cached:
        return False
    data = batch.read()
    header = read_entry(data, 0, len(data))
    return header is None or not header.codec


def find_record(batch: FileRange, timestamp: int, start_offset: int) -> TimestampOffset | None:
    """Find the first record of a batch from `start_offset` on, not earlier than `timestamp`.

    This may run in any thread. Raises CorruptRecord and OSError.
    """
    data = batch.read()
    for record in decode_batch(data, 0, read_entry(data, 0, len(data))):
        if record.timestamp_ms >= timestamp and record.offset >= start_offset:
            return TimestampOffset(record.timestamp_ms, record.offset)
    return None


def find_first_record(
    file: StorageFile, position: int, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    """Do the same with all batches of a segment's file from `position` on."""
    for batch in scan(file, position):
        if _may_hold(batch, timestamp, start_offset):
            record = find_record(file.range(batch.position, batch.size), timestamp, start_offset)
            if record is not None:
                return record
    return None
