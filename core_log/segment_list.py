"""The segments of a log in order, and how an offset or a timestamp is found in them.

A fetch costs one search for its first batch (index, then a few headers); where it ends is simply
a size, and may be within a batch, as a Kafka broker's answer may. A consumer that keeps up does
not even search: the positions where recent reads ended are remembered, and that is where the next
one starts.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator

import attrs

from core_log.batch_scan import ShallowBatch, scan, scan_produced
from core_log.retention import SegmentAge
from core_log.segment import Segment
from core_log.storage import FileRange
from core_log.time_index import TimestampOffset
from protocol.records.batch import decode_batch
from protocol.records.batch_header import LOG_OVERHEAD, BatchHeader
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import read_entry

EARLIEST_TIME = -2
LATEST_TIME = -1
REMEMBERED_POSITIONS = 16

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class SegmentList:
    """At least one segment, by base offset, the last one active; the log ends at `end_offset`."""

    segments: list[Segment]
    end_offset: int
    _positions: dict[int, tuple[Segment, int]] = attrs.field(factory=dict)

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

    def add(self, segment: Segment) -> None:
        """Put a new active segment behind the others."""
        assert not self.segments or segment.base_offset > self.active.base_offset
        self.segments.append(segment)

    def keep(self, start: int, stop: int | None = None) -> list[Segment]:
        """Keep the segments from number `start` to `stop` only; those that went."""
        gone = self.segments[:start] + ([] if stop is None else self.segments[stop:])
        self.segments = self.segments[start:stop]
        self._positions.clear()
        return gone

    def floor(self, offset: int) -> int:
        """The number of the last segment that starts at or below `offset`, 0 if none does."""
        return max(0, bisect_right(self.segments, offset, key=_base_offset) - 1)

    def reread_from(self, recovery_point: int) -> int:
        """The base offset from which on segments may be read again: unflushed, or the last two."""
        oldest = min(self.floor(recovery_point), max(0, len(self.segments) - 2))
        return self.segments[oldest].base_offset

    def end_at(self, offset: int) -> None:
        """The log was cut: what was remembered of it may be wrong."""
        self.end_offset = offset
        self._positions.clear()

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> FileRange | None:
        """Bytes of one segment from the batch that holds `offset`, or the next one, on.

        They stay below `end_offset`. If the first batch alone is more than `max_bytes`, that is
        what is read with `min_one`, and nothing without.
        """
        segment, position = self._locate(offset)
        end_segment, end_position = self._locate(end_offset)
        if end_segment is not segment:
            end_position = segment.size
        available = end_position - position
        size = min(available, max_bytes)
        if size < available:
            first = _batch_size(segment, position)
            if size < first:
                size = min(available, first) if min_one else 0
        if size == available:
            self._remember(end_offset, segment, end_position)
        return segment.log.range(position, size) if size > 0 else None

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """Bytes of the batches from `offset` up to `end_offset`."""
        return self._distance(*self._locate(end_offset)) - self._distance(*self._locate(offset))

    def first_at_or_after(self, timestamp: int, start_offset: int) -> TimestampOffset | None:
        """The first record from `start_offset` on that is not earlier than `timestamp`."""
        for segment in self.segments:
            if segment.largest_timestamp >= timestamp:
                for batch in _candidates(segment, timestamp, start_offset):
                    for record in _records(segment, batch):
                        if record.timestamp >= timestamp and record.offset >= start_offset:
                            return record
        return None

    def produced_from(self, offset: int) -> Iterator[BatchHeader]:
        """The headers of the batches from `offset` on that name their producer.

        A segment that is damaged ends where it is, and the log goes on with the next one.
        """
        for segment in self.segments[self.floor(offset) :]:
            start = segment.offset_index.lookup(offset).position
            try:
                for header in scan_produced(segment.log, start):
                    if header.base_offset >= offset:
                        yield header
            except CorruptRecord as error:
                _log.error("%s: segment %d: %s", segment.directory.path, segment.base_offset, error)

    def last_written_by(self, time_ms: int, log_start_offset: int, now_ms: int) -> list[int]:
        """Where segments begin that were last written by `time_ms`, newest first; Log says how."""
        times = [
            (max(segment.base_offset, log_start_offset), segment.modified_ms)
            for segment in self.segments
        ]
        if self.active.size:
            times.append((self.end_offset, now_ms))
        if time_ms == EARLIEST_TIME:
            times = times[:1]
        elif time_ms != LATEST_TIME:
            while times and times[-1][1] > time_ms:
                times.pop()
        return [offset for offset, _ in reversed(times)]

    def ages(self) -> list[SegmentAge]:
        """What retention asks of each segment."""
        ends = [*(segment.base_offset for segment in self.segments[1:]), self.end_offset]
        return [
            SegmentAge(end_offset, segment.size, segment.largest_timestamp)
            for segment, end_offset in zip(self.segments, ends, strict=True)
        ]

    def _locate(self, offset: int) -> tuple[Segment, int]:
        """Where the first batch is that holds `offset` or a later one; else the log's end."""
        if offset >= self.end_offset:
            return self.active, self.active.size
        known = self._positions.get(offset)
        if known is not None and known[1] < known[0].size:
            return known
        for number in range(self.floor(offset), len(self.segments)):
            batch = self.segments[number].find(offset)
            if batch is not None:
                return self.segments[number], batch.position
        return self.active, self.active.size

    def _distance(self, segment: Segment, position: int) -> int:
        """Bytes from the log's start to a position."""
        before = self.segments[: self.floor(segment.base_offset)]
        return sum(earlier.size for earlier in before) + position

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._positions) >= REMEMBERED_POSITIONS and offset not in self._positions:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = (segment, position)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _batch_size(segment: Segment, position: int) -> int:
    head = segment.log.read(position, LOG_OVERHEAD)
    return LOG_OVERHEAD + int.from_bytes(head[8:], "big")


def _candidates(segment: Segment, timestamp: int, start_offset: int) -> Iterator[ShallowBatch]:
    """The batches of a segment that may hold the record looked for."""
    indexed = segment.time_index.lookup(timestamp).offset
    start = segment.offset_index.lookup(max(indexed, start_offset)).position
    for batch in scan(segment.log, start):
        if batch.max_timestamp >= timestamp and batch.last_offset >= start_offset:
            yield batch


def _records(segment: Segment, batch: ShallowBatch) -> Iterator[TimestampOffset]:
    data = segment.log.read(batch.position, batch.size)
    for record in decode_batch(data, 0, read_entry(data, 0, len(data))):
        yield TimestampOffset(record.timestamp_ms, record.offset)
