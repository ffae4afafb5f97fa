"""Where the records of many batches are, and of each what compaction asks: key, null value, offset.

Compaction reads each record twice and looks at its value never, so nothing is decoded that is not
asked for: a record that stays is copied as the bytes between `starts` and `ends`. The answer is
columns, a list for each field, because a list comprehension over columns is the cheapest that a
decision can be. Runs of equal records are taken at once (record_run.py); with numpy, and where it
pays, all batches of a chunk are read together (span_columns.py).

Of headers only the room is seen: they are copied, never read.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_run import SHORTEST_RUN, Run, find_run, timestamps_of
from protocol.records.record_walk import SMALLEST_RECORD
from protocol.records.varint import decode_folded

NO_KEY: Final = -1
"""Where the key ends of a record that has none."""
_STRETCH: Final = 64
"""Records read one by one before looking for a run again."""
_FEWEST_FOR_COLUMNS: Final = 64
"""Records from which numpy is faster."""


class Bodies(NamedTuple):
    """The records of batches, decompressed: columns again, a row for each batch.

    Those of one are the bytes from `starts` to `ends` of a buffer, `counts` of them.
    """

    starts: Sequence[int]
    ends: Sequence[int]
    counts: Sequence[int]
    base_offsets: Sequence[int]


class Spans(NamedTuple):
    """Columns, a row for each record of all bodies in turn; `keyless` of them have no key, which
    ends at NO_KEY."""

    starts: Sequence[int]
    ends: Sequence[int]
    offsets: Sequence[int]
    timestamp_deltas: Sequence[int]
    key_starts: Sequence[int]
    key_ends: Sequence[int]
    tombstones: Sequence[int]
    keyless: int


def record_spans(buffer: bytes, bodies: Bodies) -> Spans:
    """Read exactly the records of all `bodies`, each of which fills its place in `buffer`.

    Offsets go up within a batch. Raises CorruptRecord, which names the batch by its base offset.
    """
    find = _columns_finder()
    if find is not None and sum(bodies.counts) >= _FEWEST_FOR_COLUMNS:
        spans = find(buffer, bodies)
        if spans is not None:
            return spans
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
    """Spans while they grow."""

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
    """Import numpy when it is first wanted: it takes 0.1 s and 13 MB."""
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
    first, left = len(spans.starts), count
    while left:
        run = find_run(buffer, pos, left) if left >= SHORTEST_RUN else None
        if run is not None and run.end <= end:
            _add_run(buffer, run, base_offset, spans)
            pos, left = run.end, left - run.records
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


def _add_run(buffer: bytes, run: Run, base_offset: int, spans: _Lists) -> None:
    spans.starts.extend(range(run.pos, run.end, run.stride))
    spans.ends.extend(range(run.pos + run.stride, run.end + 1, run.stride))
    offset = base_offset + run.first_delta
    spans.offsets.extend(range(offset, offset + run.records))
    spans.timestamp_deltas.extend(timestamps_of(buffer, run, 0))
    spans.key_starts.extend(range(run.key_at, run.end, run.stride))
    if run.key_length < 0:
        spans.key_ends.extend([NO_KEY] * run.records)
    else:
        spans.key_ends.extend(range(run.key_at + run.key_length, run.end, run.stride))
    spans.tombstones.extend([run.value_length < 0] * run.records)


def _read_stretch(
    buffer: bytes, pos: int, end: int, count: int, base_offset: int, spans: _Lists
) -> int:
    """Read `count` records from `pos`, one by one; where they end.

    Numbers stay folded (varint.py): null is 1, and `size >> 1` steps over a null as over nothing.
    """
    starts, ends, offsets, timestamp_deltas, key_starts, key_ends, tombstones = spans
    for _ in range(count):
        starts.append(pos)
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
        pos += 1

        if (timestamp := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            timestamp += (high << 7) - 128
            pos += 2
        else:
            timestamp, pos = decode_folded(buffer, pos, 64)

        if (delta := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            delta += (high << 7) - 128
            pos += 2
        else:
            delta, pos = decode_folded(buffer, pos, 32)

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
        odd_length = size & 1 and size != 1

        if (size := buffer[pos]) < 128:
            pos += 1
        elif (high := buffer[pos + 1]) < 128:
            size += (high << 7) - 128
            pos += 2
        else:
            size, pos = decode_folded(buffer, pos, 32)
        if odd_length or delta & 1 or (size & 1 and size != 1):
            raise CorruptRecord("a length or offset in it is negative")
        if pos + (size >> 1) >= record_end:
            raise CorruptRecord("its fields are longer than it is")
        tombstones.append(size == 1)
        offsets.append(base_offset + (delta >> 1))
        timestamp_deltas.append(timestamp >> 1 ^ -(timestamp & 1))
        ends.append(record_end)
        pos = record_end
    return pos
