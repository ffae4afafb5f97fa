"""Read the records of a batch in a single pass that trusts no field.

A record is `length | attributes | timestamp delta | offset delta | key | value | headers`; all
numbers but the attributes are varints (varint.py). `walk` serves the broker, which needs to know
that each length and delta is true, and the consumer, which also needs the fields. It is the hot
loop of both. So it reads varints of one and two bytes in line, and finds out only that something is
wrong. `read_record`, slow and plain, then finds out what is wrong. Interpreted, it also takes runs
of equal records at once (record_run.py) and, if numpy is there, many uneven ones
(record_columns.py); compiled, the loop needs less time than those.

Positions only grow. So if the fields of each record end exactly where its length says, and the last
record ends exactly at the end of the body, all of them have been read within their bounds.

Three readers know less and are faster: key_values.py, record_spans.py and span_columns.py.
"""

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from protocol.records.corrupt_record import CorruptRecord, KeyRequired
from protocol.records.record_run import (
    SHORTEST_RUN,
    RecordRun,
    Row,
    find_run,
    newest_delta,
    rows_of,
)
from protocol.records.varint import decode_folded, decode_varint, decode_varlong
from protocol.version import COMPILED

if TYPE_CHECKING:
    from protocol.records.record_columns import Columns

Headers = tuple[tuple[str, bytes | None], ...]

SMALLEST_RECORD: Final = 7
"""Bytes of a record with neither key nor value nor headers."""
_STRETCH: Final = 32
"""Number of records read one by one before the next search for a run."""
_FEWEST_FOR_COLUMNS: Final = 256
"""Reading this many by columns takes two thirds of the time of one by one; 190 take the same."""


def walk(
    body: bytes,
    count: int,
    *,
    strict: bool,
    require_keys: bool = False,
    base_offset: int = 0,
    base_timestamp: int = 0,
    rows: list[Row] | None = None,
) -> tuple[int, int]:
    """Read exactly `count` (at least 1) records that fill `body`; add them to `rows` if given.

    Offset deltas must go up. `strict` is the rule for what a client produces: offset deltas are 0,
    1, 2, … and the unused record attributes are 0. Returns the greatest timestamp delta and the
    last offset delta. Raises CorruptRecord, which names the record and what is wrong with it.
    """
    # A false count is refused before the walk.
    if count * SMALLEST_RECORD > len(body):
        raise CorruptRecord(f"batch says {count} records, which {len(body)} bytes cannot hold")

    rules = _Rules(strict, require_keys, base_offset, base_timestamp)
    if COMPILED or count < SHORTEST_RUN:
        pos, least_delta, newest = _walk_stretch(body, 0, 0, count, 0, rules, rows)
    else:
        pos, least_delta, newest = _walk_parts(body, count, rules, rows)

    if pos != len(body):
        raise CorruptRecord(f"{len(body) - pos} bytes are left over after {count} records")
    return newest, least_delta - 1


class _Rules(NamedTuple):
    """The arguments of `walk` that all its parts need."""

    strict: bool
    require_keys: bool
    base_offset: int
    base_timestamp: int

    def allow(self, run: RecordRun, least_delta: int) -> bool:
        # Read one by one, the first record without a key is named in the error.
        if self.require_keys and run.key_length < 0:
            return False

        # Compaction leaves gaps; a client must not.
        gap = run.first_delta - least_delta
        return gap == 0 or (gap > 0 and not self.strict)


def _walk_parts(
    body: bytes, count: int, rules: _Rules, rows: list[Row] | None
) -> tuple[int, int, int]:
    """Read `count` records by runs, by columns and one by one, whatever comes.

    Returns their end, the least offset delta for the next record and the greatest timestamp delta.
    """
    pos = index = least_delta = 0
    # Lower than any timestamp delta, which has 64 bits.
    newest = -(1 << 64)
    is_uneven = count >= _FEWEST_FOR_COLUMNS

    while index < count:
        left = count - index
        run = find_run(body, pos, left) if left >= SHORTEST_RUN else None
        if run is not None and rules.allow(run, least_delta):
            # Records of equal shape come next.
            pos = run.end
            taken = run.records
            least_delta = run.first_delta + run.records
            newest_here = newest_delta(body, run)
            if rows is not None:
                rows.extend(rows_of(body, run, rules.base_offset, rules.base_timestamp))
        elif (
            is_uneven
            and left >= _FEWEST_FOR_COLUMNS
            and (read := _walk_columns(body, pos, index, left, least_delta, rules, rows))
        ):
            # Many records of uneven size.
            pos, taken, least_delta, newest_here = read
        else:
            # A stretch one by one. What is not fit for columns once is not tried again.
            is_uneven = False
            taken = min(left, _STRETCH)
            pos, least_delta, newest_here = _walk_stretch(
                body, pos, index, taken, least_delta, rules, rows
            )
        index += taken
        newest = max(newest, newest_here)

    return pos, least_delta, newest


class _FindColumns(Protocol):
    def __call__(
        self, body: bytes, pos: int, most: int, *, require_keys: bool
    ) -> "Columns | None": ...


@cache
def _columns_finder() -> _FindColumns | None:
    """Import numpy on first use: it takes 0.1 s and 13 MB."""
    try:
        from protocol.records.record_columns import find_columns
    except ImportError:
        return None
    return find_columns


def _walk_columns(
    body: bytes,
    pos: int,
    index: int,
    most: int,
    least_delta: int,
    rules: _Rules,
    rows: list[Row] | None,
) -> tuple[int, int, int, int] | None:
    """Read up to `most` records by columns.

    Returns their end, their number, the least offset delta for the next record and the greatest
    timestamp delta. Returns None if they are not fit for columns or one of them is corrupt;
    _walk_stretch then finds out.
    """
    find_columns = _columns_finder()
    if find_columns is None:
        return None

    columns = find_columns(body, pos, most, require_keys=rules.require_keys)
    if columns is None:
        return None
    starts = columns.starts
    timestamps = columns.timestamp_deltas
    deltas = columns.offset_deltas
    count = len(starts)

    # Read the odd ones as the plain walk does, and correct the columns.
    odd_rows: list[Row] = []
    for nth in columns.odd:
        least = (int(deltas[nth - 1]) >> 1) + 1 if nth else least_delta
        try:
            end, least, timestamps[nth] = _walk_stretch(
                body, int(starts[nth]), index + nth, 1, least, rules, odd_rows
            )
        except CorruptRecord:
            return None
        assert end == (starts[nth + 1] if nth + 1 < count else columns.end)
        deltas[nth] = least - 1 << 1

    # The offsets must go up over all records, the odd ones included.
    if not columns.ascend_from(least_delta, gaps=not rules.strict):
        return None

    if rows is not None:
        decoded = columns.rows(body, rules.base_offset, rules.base_timestamp)
        for nth, row in zip(columns.odd, odd_rows, strict=True):
            decoded[nth] = row
        rows.extend(decoded)
    return columns.end, count, (int(deltas[-1]) >> 1) + 1, int(timestamps.max())


def _walk_stretch(
    body: bytes,
    pos: int,
    index: int,
    count: int,
    least_delta: int,
    rules: _Rules,
    rows: list[Row] | None,
) -> tuple[int, int, int]:
    """Read `count` records from `pos`, one by one.

    Returns their end, the least offset delta for the next record and the greatest timestamp delta.
    Numbers stay folded (varint.py), so null is 1, and `size >> 1` is 0 for null. Numbers of one and
    two bytes are read in line, because a call takes longer than the rest. A record that breaks a
    rule ends the loop; what is wrong with it is found out afterwards.
    """
    strict, require_keys, base_offset, base_timestamp = rules
    nth = index
    start = pos
    least = least_delta << 1

    # Folded: `newest` is the greatest even delta, `oldest` the smallest odd one, which counts only
    # if all deltas are negative.
    newest = -1
    oldest = 1 << 64
    try:
        for nth in range(index, index + count):  # noqa: B007 (which record it was)
            start = pos
            # The length, which counts what comes after it.
            if (length := body[pos]) < 128:
                pos += 1
            elif (high := body[pos + 1]) < 128:
                length += (high << 7) - 128
                pos += 2
            else:
                length, pos = decode_folded(body, pos, 32)
            begin = pos

            # The attributes are unused: a client must send 0, a reader ignores them.
            if body[pos] and strict:
                break
            pos += 1

            # The timestamp delta.
            if (timestamp := body[pos]) < 128:
                pos += 1
            elif (high := body[pos + 1]) < 128:
                timestamp += (high << 7) - 128
                pos += 2
            else:
                timestamp, pos = decode_folded(body, pos, 64)
            if timestamp > newest:
                if not timestamp & 1:
                    newest = timestamp
                elif timestamp < oldest:
                    oldest = timestamp

            # The offset delta: the expected one, or after a gap a greater one.
            if (delta := body[pos]) < 128:
                pos += 1
            elif (high := body[pos + 1]) < 128:
                delta += (high << 7) - 128
                pos += 2
            else:
                delta, pos = decode_folded(body, pos, 32)
            if delta != least:
                if strict or delta < least or delta & 1:
                    break
                least = delta

            # The key: -1 is null, any other negative length is wrong.
            if (size := body[pos]) < 128:
                pos += 1
            elif (high := body[pos + 1]) < 128:
                size += (high << 7) - 128
                pos += 2
            else:
                size, pos = decode_folded(body, pos, 32)
            if size & 1 and (require_keys or size != 1):
                break
            key_size = size
            key_at = pos
            pos += size >> 1

            # The value.
            if (size := body[pos]) < 128:
                pos += 1
            elif (high := body[pos + 1]) < 128:
                size += (high << 7) - 128
                pos += 2
            else:
                size, pos = decode_folded(body, pos, 32)
            if size & 1 and size != 1:
                break
            value_at = pos
            pos += size >> 1

            # The headers. Most records have none.
            headers: Headers = ()
            if body[pos]:
                headers, pos = read_headers(body, pos)
            else:
                pos += 1

            # The fields must end where the length says.
            if pos - begin << 1 != length:
                break
            least += 2
            if rows is not None:
                rows.append(
                    (
                        base_offset + (delta >> 1),
                        base_timestamp + (timestamp >> 1 ^ -(timestamp & 1)),
                        None if key_size == 1 else body[key_at : key_at + (key_size >> 1)],
                        None if size == 1 else body[value_at : value_at + (size >> 1)],
                        headers,
                    )
                )
        else:
            return pos, least >> 1, newest >> 1 if newest >= 0 else ~(oldest >> 1)
    except (IndexError, CorruptRecord):
        # What is wrong is found out below.
        pass

    raise _explain(body, start, nth, least >> 1, rules)


def read_headers(body: bytes, pos: int) -> tuple[Headers, int]:
    """Read the count of headers at `pos` and the headers; return them and the next position."""
    count, pos = decode_varint(body, pos)
    # A header takes two bytes at least: refuse a false count before the loop.
    if not 0 <= count <= (len(body) - pos) // 2:
        raise CorruptRecord(f"header count {count} with {len(body) - pos} bytes left")

    headers = []
    for _ in range(count):
        key, pos = _read_bytes(body, pos, "header key")
        if key is None:
            raise CorruptRecord("header key is null")
        value, pos = _read_bytes(body, pos, "header value")
        headers.append((key.decode("utf-8", "replace"), value))
    return tuple(headers), pos


class PlainRecord(NamedTuple):
    """A record with its deltas, as `read_record` reads it."""

    attributes: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_record(body: bytes, start: int) -> PlainRecord:
    """Read the record at `start` field by field. Raises CorruptRecord, which says what is wrong."""
    length, begin = decode_varint(body, start)
    if not SMALLEST_RECORD - 1 <= length <= len(body) - begin:
        raise CorruptRecord(f"length {length} with {len(body) - begin} bytes left")

    fields = body[begin : begin + length]

    # Position 0 has the attributes.
    timestamp_delta, pos = decode_varlong(fields, 1)
    offset_delta, pos = decode_varint(fields, pos)
    key, pos = _read_bytes(fields, pos, "key")
    value, pos = _read_bytes(fields, pos, "value")
    headers, pos = read_headers(fields, pos)

    if pos != length:
        raise CorruptRecord(f"length {length} but its fields take {pos} bytes")
    return PlainRecord(fields[0], timestamp_delta, offset_delta, key, value, headers)


def _read_bytes(body: bytes, pos: int, field: str) -> tuple[bytes | None, int]:
    length, pos = decode_varint(body, pos)
    if length == -1:
        return None, pos

    if not 0 <= length <= len(body) - pos:
        raise CorruptRecord(f"{field} length {length} with {len(body) - pos} bytes left")
    return body[pos : pos + length], pos + length


def _explain(body: bytes, start: int, index: int, least_delta: int, rules: _Rules) -> CorruptRecord:
    """Find out why the hot loop refused the record at `start`: read it again, slowly."""
    # Its fields first, then the rules.
    try:
        record = read_record(body, start)
    except CorruptRecord as error:
        return CorruptRecord(f"record {index}: {error}")

    if rules.strict and record.attributes:
        return CorruptRecord(f"record {index}: attributes {record.attributes} are not 0")
    if rules.strict and record.offset_delta != least_delta:
        return CorruptRecord(
            f"record {index}: offset delta {record.offset_delta} is not {least_delta}"
        )
    if record.offset_delta < least_delta:
        return CorruptRecord(
            f"record {index}: offset delta {record.offset_delta} is below {least_delta}"
        )

    # Only one rule is left.
    assert rules.require_keys
    assert record.key is None
    return KeyRequired(f"record {index}")
