"""Find the records of many batches, with what compaction needs: key, offset, null value.

Compaction reads each record twice and never needs its value, so nothing is decoded that it does not
need: a record that stays is copied as the bytes between `starts` and `ends`. The result is columns,
a list for each field, because a list comprehension over columns is the cheapest way to decide about
records. With numpy, where it pays, all batches of a chunk are read together (span_columns.py).
Without it, and if this module is not compiled, runs of records of equal shape are read at once
(record_run.py).

Headers are copied and not read, so only their room is checked.
"""

from functools import cache
from typing import Final, NamedTuple, Protocol

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_run import SHORTEST_RUN, RecordRun, find_run, timestamps_of
from protocol.records.record_walk import SMALLEST_RECORD
from protocol.records.spans import NO_KEY, Bodies, Spans
from protocol.records.varint import decode_folded
from protocol.version import COMPILED

_STRETCH: Final = 64
"""Number of records read one by one before the next search for a run."""
_FEWEST_FOR_COLUMNS: Final = 64
"""Number of records from which numpy is faster."""


def record_spans(buffer: bytes, bodies: Bodies) -> Spans:
    """Read the records of all `bodies`, which must fill their places in `buffer` exactly.

    Offsets must go up within a batch. Raises CorruptRecord, which names the batch by its base
    offset.
    """
    # With numpy, if it pays.
    find = _columns_finder()
    if find is not None and sum(bodies.counts) >= _FEWEST_FOR_COLUMNS:
        spans = find(buffer, bodies)
        if spans is not None:
            return spans

    # Batch by batch.
    lists = _Lists([], [], [], [], [], [], [])
    for start, end, count, base_offset in zip(*bodies, strict=True):
        first = len(lists.starts)
        try:
            _read_body(buffer, start, end, count, base_offset, lists)
        except (IndexError, CorruptRecord) as error:
            nth = len(lists.starts) - first
            raise CorruptRecord(f"record {nth} of the batch at {base_offset}: {error}") from None
    return Spans(*lists, lists.key_ends.count(NO_KEY))


class _Lists(NamedTuple):
    """Spans under construction."""

    starts: list[int]
    ends: list[int]
    offsets: list[int]
    timestamp_deltas: list[int]
    key_starts: list[int]
    key_ends: list[int]
    tombstones: list[int]


class _FindColumns(Protocol):
    def __call__(self, buffer: bytes, bodies: Bodies) -> Spans | None: ...


@cache
def _columns_finder() -> _FindColumns | None:
    """Import numpy on first use: it takes 0.1 s and 13 MB."""
    try:
        from protocol.records.span_columns import find_spans
    except ImportError:
        return None
    return find_spans


def _read_body(
    buffer: bytes, pos: int, end: int, count: int, base_offset: int, spans: _Lists
) -> None:
    if count < 0 or count * SMALLEST_RECORD > end - pos:
        raise CorruptRecord(f"{count} records cannot be in {end - pos} bytes")

    # Runs of equal records at once, and stretches between them one by one. Compiled, the search for
    # a run takes longer than reading it.
    first = len(spans.starts)
    left = count
    while left:
        run = find_run(buffer, pos, left) if not COMPILED and left >= SHORTEST_RUN else None
        if run is not None and run.end <= end:
            _add_run(buffer, run, base_offset, spans)
            pos = run.end
            left -= run.records
        else:
            taken = min(left, _STRETCH)
            pos = _read_stretch(buffer, pos, end, taken, base_offset, spans)
            left -= taken

    if pos != end:
        raise CorruptRecord(f"{end - pos} bytes are left over after {count} records")
    if count > 1:
        offsets = spans.offsets[first:]
        if any(map(int.__ge__, offsets, offsets[1:])):
            raise CorruptRecord("offsets do not go up")


def _add_run(buffer: bytes, run: RecordRun, base_offset: int, spans: _Lists) -> None:
    spans.starts.extend(range(run.pos, run.end, run.stride))
    spans.ends.extend(range(run.pos + run.stride, run.end + 1, run.stride))
    offset = base_offset + run.first_delta
    spans.offsets.extend(range(offset, offset + run.records))
    spans.timestamp_deltas.extend(timestamps_of(buffer, run, 0))
    spans.key_starts.extend(range(run.key_at, run.end, run.stride))

    # Neighbours of equal shape either all have a key or none has.
    if run.key_length < 0:
        spans.key_ends.extend([NO_KEY] * run.records)
    else:
        spans.key_ends.extend(range(run.key_at + run.key_length, run.end, run.stride))
    spans.tombstones.extend([run.value_length < 0] * run.records)


def _read_stretch(
    buffer: bytes, pos: int, end: int, count: int, base_offset: int, spans: _Lists
) -> int:
    """Read `count` records from `pos`, one by one; return their end.

    Numbers stay folded (varint.py), so null is 1, and `size >> 1` is 0 for null. Numbers of one and
    two bytes are read in line, because a call takes longer than the rest.
    """
    starts, ends, offsets, timestamp_deltas, key_starts, key_ends, tombstones = spans
    for _ in range(count):
        starts.append(pos)

        # The length of the record, which may not lead beyond the body.
        if (length := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            length += (high << 7) - 128
            pos += 2
        else:
            length, pos = decode_folded(buffer, pos, 32)
        record_end = pos + (length >> 1)
        if length & 1 or record_end > end:
            raise CorruptRecord(f"it says it ends at byte {record_end} of {end}")
        pos += 1  # the attributes

        # The timestamp delta.
        if (timestamp := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            timestamp += (high << 7) - 128
            pos += 2
        else:
            timestamp, pos = decode_folded(buffer, pos, 64)

        # The offset delta.
        if (delta := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            delta += (high << 7) - 128
            pos += 2
        else:
            delta, pos = decode_folded(buffer, pos, 32)

        # The key.
        if (size := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            size += (high << 7) - 128
            pos += 2
        else:
            size, pos = decode_folded(buffer, pos, 32)
        key_starts.append(pos)
        pos += size >> 1
        key_ends.append(NO_KEY if size == 1 else pos)
        has_bad_length = size & 1 and size != 1

        # The value: only whether it is null, and where it ends.
        if (size := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            size += (high << 7) - 128
            pos += 2
        else:
            size, pos = decode_folded(buffer, pos, 32)

        # Behind the value there is at least the byte of the header count.
        if has_bad_length or delta & 1 or (size & 1 and size != 1):
            raise CorruptRecord("a length or offset in it is negative")
        if pos + (size >> 1) >= record_end:
            raise CorruptRecord("its fields are longer than it is")

        tombstones.append(size == 1)
        offsets.append(base_offset + (delta >> 1))
        timestamp_deltas.append(timestamp >> 1 ^ -(timestamp & 1))
        ends.append(record_end)
        pos = record_end
    return pos
