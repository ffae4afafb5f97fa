"""Read fetched record batches by columns into Arrow arrays: no Python object for a record.

numpy finds the fields of all records of many batches together (protocol/records/span_columns.py).
Numbers are arrays then. Keys and values are still spread over the fetched bytes: starts and ends in
turn are the offsets of an Arrow array in which every second value is a payload, and Arrow copies
those out.

What is unusual is left to the rows: old formats, headers that are asked for, numbers that are too
wide, and all that is damaged, so that there is one place that says what is wrong. Headers that are
not asked for are not read at all.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c

from clients.fetching import VisibleBatches
from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch_header import (
    CODEC_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    codec_of,
    read_header,
)
from protocol.records.checksums import check_crc
from protocol.records.compression import CompressionUnavailable, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import Buffer
from protocol.records.header_columns import Headers, find_batches, read_headers
from protocol.records.record_columns import Ints
from protocol.records.span_columns import Fields, Flags, find_fields
from protocol.records.spans import Bodies
from protocol.topic_partition import TopicPartition
from spark_connector.rows import ROWS_PER_BATCH, FetchedBatches, arrow_schema

_GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of decompressed records from which no further batch is read together with them."""
_COVERED_HEADER_BYTES = HEADER_BYTES - CRC_COVERS_FROM
"""Bytes of a header that its CRC covers."""
_MOST_BUFFER_BYTES = 2**31 - 1
"""Bound of an offset in an Arrow array of bytes."""
_LARGEST_BASE = 1 << 61
"""Bound on a batch's base timestamp, to which deltas are added without an overflow."""


def read_columns(
    partition: TopicPartition,
    response: FetchResponsePartition,
    start: int,
    end: int,
    names: Collection[str],
) -> FetchedBatches | None:
    """Read the records from `start` to `end` (exclusive) of a response without an error.

    `names` are the columns to build. Returns None if the rows must be read instead.
    """
    # The rows decode headers, which nobody wants by columns so far.
    if "headers" in names:
        return None

    try:
        positions, headers, next_offset = _find_visible(response, start)
        batches = [
            piece
            for group in _groups(response.records, positions, headers)
            for piece in _record_batches(partition, group, start, end, names)
        ]
    except (_Unusual, CorruptRecord, CompressionUnavailable):
        return None
    return FetchedBatches(batches, next_offset, len(response.records))


class _Unusual(Exception):
    """The batches are not fit for columns."""


class _Group(NamedTuple):
    """Batches that are read together: the buffer that has their bodies, and columns of them."""

    buffer: bytes
    starts: Ints
    ends: Ints
    headers: Headers


def _find_visible(response: FetchResponsePartition, start: int) -> tuple[Ints, Headers, int]:
    """Return positions and headers of the batches with records to see, and the next offset.

    Raises _Unusual, CorruptRecord.
    """
    found = find_batches(response.records)
    if not found:
        raise _Unusual("an old format, or only a part of a batch")

    positions = np.array(found)
    headers = read_headers(response.records, positions)
    next_offsets = headers["base_offset"] + headers["last_offset_delta"] + 1
    next_offset = max(start, int(next_offsets.max()))

    # Brokers begin with the batch of the offset, unless its damaged header says otherwise.
    is_visible = next_offsets > start
    for pos in positions[~is_visible].tolist():
        check_crc(response.records, pos, read_header(response.records, pos))

    if (headers["attributes"] & (TRANSACTIONAL | CONTROL)).any():
        visible = [pos for pos, _ in VisibleBatches.of(response, start)]
        is_visible &= np.isin(positions, visible)
    return positions[is_visible], headers[is_visible], next_offset


def _groups(records: Buffer, positions: Ints, headers: Headers) -> Iterator[_Group]:
    """Check the batches, and gather those with records.

    Raises CorruptRecord, CompressionUnavailable.
    """
    fetched = bytes(records)
    starts = positions + HEADER_BYTES
    ends = positions + headers["length"] + LOG_OVERHEAD
    _check_crcs(fetched, starts - _COVERED_HEADER_BYTES, ends, headers["crc"])

    # Compaction leaves the header of a batch that it has emptied.
    has_records = headers["count"] != 0
    if not has_records.all():
        starts, ends, headers = starts[has_records], ends[has_records], headers[has_records]

    codecs = headers["attributes"] & CODEC_MASK
    if codecs.any():
        yield from _decompressed(fetched, starts, ends, codecs, headers)
    elif len(headers):
        yield _Group(fetched, starts, ends, headers)


def _check_crcs(fetched: bytes, starts: Ints, ends: Ints, crcs: Ints) -> None:
    view = memoryview(fetched)
    for start, end, crc in zip(starts.tolist(), ends.tolist(), crcs.tolist(), strict=True):
        if crc32c(view[start:end]) != crc:
            raise CorruptRecord("a batch does not match its CRC")


def _decompressed(
    fetched: bytes, starts: Ints, ends: Ints, codecs: Ints, headers: Headers
) -> Iterator[_Group]:
    """Decompress batches; a group ends with the batch that makes it large enough."""
    view = memoryview(fetched)
    parts: list[bytes | memoryview] = []
    size = 0
    first = 0
    for row, codec in enumerate(codecs.tolist()):
        body: bytes | memoryview = view[starts[row] : ends[row]]
        if codec:
            body = decompress(codec_of(codec), body, MAX_DECOMPRESSED_BYTES)
        parts.append(body)
        size += len(body)

        if size >= _GROUP_BYTES or row + 1 == len(codecs):
            part_ends = np.array([len(part) for part in parts]).cumsum()
            part_starts = np.append(0, part_ends[:-1])
            yield _Group(b"".join(parts), part_starts, part_ends, headers[first : row + 1])
            parts, size, first = [], 0, row + 1


def _record_batches(
    partition: TopicPartition, group: _Group, start: int, end: int, names: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a group from `start` to `end`, in pieces of bounded size."""
    buffer = group.buffer
    headers = group.headers
    if len(buffer) > _MOST_BUFFER_BYTES:
        raise _Unusual("offsets of more than 31 bits")

    columns_of_bodies = (group.starts, group.ends, headers["count"], headers["base_offset"])
    bodies = Bodies(*(column.tolist() for column in columns_of_bodies))
    fields = find_fields(buffer, bodies)
    if fields is None or not _fill_their_batches(fields, headers, buffer):
        raise _Unusual("numbers too wide, or a contradiction")

    # The first and the last batch may have records outside of the range.
    timestamps, types = _times(fields, headers)
    wanted = (fields.offsets >= start) & (fields.offsets < end)
    if not wanted.all():
        fields = fields.select(wanted)
        timestamps = timestamps[wanted]
        types = types[wanted]
    rows = len(fields.offsets)

    # Only the columns that are asked for.
    whole = pa.py_buffer(buffer)
    columns = []
    schema = arrow_schema(names)
    for name in schema.names:
        match name:
            case "key":
                keyless = fields.is_keyless
                column = _payloads(whole, fields.key_starts, fields.key_ends, keyless)
            case "value":
                tombstones = fields.is_tombstone
                column = _payloads(whole, fields.value_starts, fields.value_ends, tombstones)
            case "topic":
                column = pa.repeat(pa.scalar(partition.topic), rows)
            case "partition":
                column = pa.repeat(pa.scalar(partition.partition, pa.int32()), rows)
            case "offset":
                column = pa.array(fields.offsets)
            case "timestamp":
                # Kafka's times are in milliseconds, Spark's in microseconds.
                milliseconds = pa.array(timestamps).view(pa.timestamp("ms", "UTC"))
                column = milliseconds.cast(schema.field(name).type)
            case _:
                assert name == "timestampType"
                column = pa.array(types)
        columns.append(column)

    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    for first in range(0, rows, ROWS_PER_BATCH):
        yield batch.slice(first, ROWS_PER_BATCH)


def _fill_their_batches(fields: Fields, headers: Headers, buffer: bytes) -> bool:
    """Return whether no record lies beyond its batch's end, or has bytes instead of headers."""
    # Offsets go up within a batch, so its last record is enough.
    last_rows = headers["count"].cumsum() - 1
    last_offsets = headers["base_offset"] + headers["last_offset_delta"]
    if (fields.offsets[last_rows] > last_offsets).any():
        return False

    # Where one byte is left for the headers, it is their count, 0.
    octets = np.frombuffer(buffer, np.uint8)
    return not np.any((octets[fields.value_ends] != 0) & (fields.value_ends + 1 == fields.ends))


def _times(fields: Fields, headers: Headers) -> tuple[Ints, "np.typing.NDArray[np.int32]"]:
    """Return timestamps and their types."""
    bases = headers["base_timestamp"].astype(np.int64)
    if (abs(bases) >= _LARGEST_BASE).any():
        raise _Unusual("timestamps that may overflow")

    counts = headers["count"]
    timestamps = np.repeat(bases, counts) + fields.timestamp_deltas
    types = np.repeat((headers["attributes"] & LOG_APPEND_TIME != 0).astype(np.int32), counts)

    # LogAppendTime: the broker's time in the header counts for all records.
    if types.any():
        appended = headers["max_timestamp"].astype(np.int64)
        timestamps = np.where(types, np.repeat(appended, counts), timestamps)
    return timestamps, types


def _payloads(buffer: pa.Buffer, starts: Ints, ends: Ints, is_null: Flags) -> pa.Array:
    rows = len(starts)
    if is_null.all():
        return pa.nulls(rows, pa.binary())

    # Payloads and the gaps between them take turns.
    edges = np.empty(2 * rows, np.int32)
    edges[0::2] = starts
    edges[1::2] = ends
    pieces = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(edges), buffer])

    # Take the payloads alone; a null index takes null.
    indexes = pa.array(np.arange(0, 2 * rows, 2), mask=is_null if is_null.any() else None)
    return pieces.take(indexes)
