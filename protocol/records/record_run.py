"""Find runs of records of equal shape by columns instead of one by one.

Producers of values of fixed size (metrics, sensor frames, all load generators) write neighbours
that differ only in timestamp, offset and payload. If each of k neighbours has the length of the
first, record i begins i lengths later, so byte j of all of them is one strided slice,
`body[j::stride]`. One comparison of that slice proves the field for the whole run. By induction
nothing is assumed: the run ends before the first record whose length, or width of a varint,
differs.
"""

from collections.abc import Iterable
from itertools import repeat
from typing import Final, NamedTuple

from protocol.records.corrupt_record import CorruptRecord
from protocol.records.varint import decode_varint, decode_varlong

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, timestamp, key, value, headers."""

SHORTEST_RUN: Final = 16
"""Finding a run takes about as long as reading this many records one by one."""

# The bytes of even folded numbers, which are not negative: alone, or low and high.
_ONE_BYTE: Final = bytes(range(0, 128, 2))
_LOW_BYTE: Final = bytes(range(128, 256, 2))
_HIGH_BYTE: Final = bytes(range(128))

_TIMESTAMP_BYTES: Final = {1: (_ONE_BYTE,), 2: (_LOW_BYTE, _HIGH_BYTE)}
"""The legal bytes of a timestamp delta, by its width. A negative delta ends a run."""

_DELTA_COLUMNS: Final = {
    1: (_ONE_BYTE,),
    2: (_LOW_BYTE * 128, b"".join(bytes((high,)) * 64 for high in range(128))),
    3: (
        _LOW_BYTE * 1024,
        b"".join(bytes((middle,)) * 64 for middle in range(128, 256)) * 8,
        b"".join(bytes((high,)) * 8192 for high in range(8)),
    ),
}
"""The bytes of the offset deltas 0, 1, 2, … by width, up to the largest of that width or 65535."""


class RecordRun(NamedTuple):
    """A run of `records` records of `stride` bytes each.

    Positions are those in the first record. A length of -1 means null.
    """

    pos: int
    records: int
    stride: int
    first_delta: int
    timestamp_at: int
    timestamp_width: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int

    @property
    def end(self) -> int:
        """Position after the last record."""
        return self.pos + self.records * self.stride


def find_run(body: bytes, pos: int, most: int) -> RecordRun | None:
    """Find a run of at most `most` records that begins at `pos`.

    Lengths, attributes (0), offset deltas (no gaps) and header counts (0) are proved. Returns None
    if the run is short, or its first record is unusual or cannot be read.
    """
    # Read the first record. Most data that has no run is refused by one comparison of lengths.
    try:
        length, attributes_at = decode_varint(body, pos)
        stride = attributes_at - pos + length
        far = pos + (SHORTEST_RUN - 1) * stride
        if length < 0 or far >= len(body) or body[far] != body[pos]:
            return None
        timestamp_at = attributes_at + 1
        _, delta_at = decode_varlong(body, timestamp_at)
        first_delta, key_length_at = decode_varint(body, delta_at)
        key_length, key_at = decode_varint(body, key_length_at)
        value_length_at = key_at + max(key_length, 0)
        value_length, value_at = decode_varint(body, value_length_at)
    except CorruptRecord:
        return None

    # Only this shape can be proved by columns.
    header_count_at = value_at + max(value_length, 0)
    timestamp_width = delta_at - timestamp_at
    deltas = _DELTA_COLUMNS.get(key_length_at - delta_at)
    if (
        timestamp_width not in _TIMESTAMP_BYTES
        or deltas is None
        or not 0 <= first_delta < len(deltas[0])
        or key_length < -1
        or value_length < -1
        or header_count_at + 1 != pos + stride
    ):
        return None

    # Compare columns: each may shorten the run.
    records = min(most, (len(body) - pos) // stride, len(deltas[0]) - first_delta)
    for at, allowed in (
        *((at, body[at : at + 1]) for at in range(pos, attributes_at)),
        (attributes_at, b"\0"),
        *enumerate(_TIMESTAMP_BYTES[timestamp_width], timestamp_at),
        *((at, body[at : at + 1]) for at in range(key_length_at, key_at)),
        *((at, body[at : at + 1]) for at in range(value_length_at, value_at)),
        (header_count_at, b"\0"),
    ):
        # The same byte of each record. The run ends where another value stands.
        column = body[at : pos + records * stride : stride]
        records = len(column) - len(column.lstrip(allowed))
        if records < SHORTEST_RUN:
            return None

    # Offset deltas must go up by 1 in the whole run.
    for at, column in enumerate(deltas, delta_at):
        expected = column[first_delta : first_delta + records]
        if body[at : pos + records * stride : stride] != expected:
            return None

    return RecordRun(
        pos=pos,
        records=records,
        stride=stride,
        first_delta=first_delta,
        timestamp_at=timestamp_at,
        timestamp_width=timestamp_width,
        key_at=key_at,
        key_length=key_length,
        value_at=value_at,
        value_length=value_length,
    )


def newest_delta(body: bytes, run: RecordRun) -> int:
    """Return the greatest timestamp delta of a run."""
    low = body[run.timestamp_at : run.end : run.stride]
    if run.timestamp_width == 1:
        return _greatest(low) >> 1

    # The low bytes count only beside the greatest high byte.
    high = body[run.timestamp_at + 1 : run.end : run.stride]
    top = _greatest(high)
    # A mask for the low bytes: all bits where the high byte is the greatest, else none.
    beside_top = high.translate(bytes(top) + b"\xff" + bytes(255 - top))
    candidates = int.from_bytes(low) & int.from_bytes(beside_top)
    return (top << 7 | _greatest(candidates.to_bytes(run.records)) & 127) >> 1


def _greatest(column: bytes) -> int:
    """Do what `max` does. For long columns it is faster to search for each byte than to compare."""
    if len(column) < 256:
        return max(column)

    return next(byte for byte in range(255, -1, -1) if byte in column)


def rows_of(body: bytes, run: RecordRun, base_offset: int, base_timestamp: int) -> "zip[Row]":
    """Decode the records of a run."""
    first = base_offset + run.first_delta
    return zip(
        range(first, first + run.records),
        timestamps_of(body, run, base_timestamp),
        payloads_of(body, run, run.key_at, run.key_length),
        payloads_of(body, run, run.value_at, run.value_length),
        repeat((), run.records),
        strict=True,
    )


def timestamps_of(body: bytes, run: RecordRun, base: int) -> list[int]:
    """Return the timestamps of the records; `base` is the base timestamp of the batch."""
    low = body[run.timestamp_at : run.end : run.stride]
    if run.timestamp_width == 1:
        return [base + (delta >> 1) for delta in low]

    high = body[run.timestamp_at + 1 : run.end : run.stride]
    return [
        base + ((second << 7 | first & 127) >> 1) for first, second in zip(low, high, strict=True)
    ]


def payloads_of(body: bytes, run: RecordRun, at: int, length: int) -> Iterable[bytes | None]:
    """Return the keys or values of the records; `at` is the position in the first one."""
    if length < 0:
        return repeat(None, run.records)

    return [body[start : start + length] for start in range(at, run.end, run.stride)]
