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

import attrs
import numpy as np
import pyarrow as pa

from clients.fetching import VisibleBatches
from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.messages.fetch import FetchResponsePartition
from protocol.records.batch_header import HEADER_BYTES, BatchHeader, check_crc
from protocol.records.compression import Codec, CompressionUnavailable, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import MessageHeader
from protocol.records.record_columns import Ints
from protocol.records.span_columns import Fields, Flags, find_fields
from protocol.records.spans import Bodies
from protocol.topic_partition import TopicPartition
from spark_connector.rows import ROWS_PER_BATCH, FetchedBatches, arrow_schema

_GROUP_BYTES = 8 * 1024 * 1024
"""Bytes of records, decompressed, from which no further batch is read together with them."""
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

    visible = VisibleBatches.of(response, start)
    try:
        batches = [
            piece
            for group in _groups(visible)
            for piece in _record_batches(partition, group, start, end, names)
        ]
    except (_Unusual, CorruptRecord, CompressionUnavailable):
        return None
    return None if visible.is_partial else FetchedBatches(batches, visible.next_offset)


class _Unusual(Exception):
    """The batches are not fit for columns."""


@attrs.define(eq=False)
class _Group:
    """Batches that are read together. Their bodies are in `fetched`, or else in `parts`."""

    fetched: bytes
    headers: list[BatchHeader] = attrs.field(factory=list)
    starts: list[int] = attrs.field(factory=list)
    """Where the bodies begin in `fetched`; without meaning if one is compressed."""
    parts: list[bytes | memoryview] = attrs.field(factory=list)
    has_compressed: bool = False
    size: int = 0
    """Bytes of all bodies."""

    def add(self, header: BatchHeader, pos: int) -> None:
        """Add the batch at `pos`. Raises CorruptRecord, CompressionUnavailable."""
        body: bytes | memoryview
        body = memoryview(self.fetched)[pos + HEADER_BYTES : pos + header.size]
        if header.codec is not Codec.NONE:
            body = decompress(header.codec, body, MAX_DECOMPRESSED_BYTES)
            self.has_compressed = True

        self.headers.append(header)
        self.starts.append(pos + HEADER_BYTES)
        self.parts.append(body)
        self.size += len(body)

    def bodies(self) -> tuple[bytes, Bodies]:
        """Return a buffer that has all bodies, and their places in it."""
        sizes = np.array([len(part) for part in self.parts])
        if self.has_compressed:
            buffer = b"".join(self.parts)
            ends = sizes.cumsum()
        else:
            buffer = self.fetched
            ends = np.array(self.starts) + sizes

        counts = [header.count for header in self.headers]
        base_offsets = [header.base_offset for header in self.headers]
        starts = (ends - sizes).tolist()
        return buffer, Bodies(starts, ends.tolist(), counts, base_offsets)


def _groups(visible: VisibleBatches) -> Iterator[_Group]:
    """Gather the batches, each of which is checked. Raises _Unusual, CorruptRecord."""
    fetched = bytes(visible.buf)
    group = _Group(fetched)
    for pos, header in visible:
        if isinstance(header, MessageHeader):
            raise _Unusual("a message of an old format")
        check_crc(fetched, pos, header)

        # Compaction leaves the header of a batch that it has emptied.
        if header.count:
            group.add(header, pos)
        if group.size >= _GROUP_BYTES:
            yield group
            group = _Group(fetched)

    if group.headers:
        yield group


def _record_batches(
    partition: TopicPartition, group: _Group, start: int, end: int, names: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a group from `start` to `end`, in pieces of bounded size."""
    buffer, bodies = group.bodies()
    if len(buffer) > _MOST_BUFFER_BYTES:
        raise _Unusual("offsets of more than 31 bits")

    fields = find_fields(buffer, bodies)
    if fields is None or not _fill_their_batches(fields, group.headers, buffer):
        raise _Unusual("numbers too wide, or a contradiction")

    # The first and the last batch may have records outside of the range.
    timestamps, types = _times(fields, group.headers)
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


def _fill_their_batches(fields: Fields, headers: list[BatchHeader], buffer: bytes) -> bool:
    """Return whether no record lies beyond its batch's end, or has bytes instead of headers."""
    # Offsets go up within a batch, so its last record is enough.
    counts = np.array([header.count for header in headers])
    last_offsets = np.array([header.last_offset for header in headers])
    if (fields.offsets[counts.cumsum() - 1] > last_offsets).any():
        return False

    # Where one byte is left for the headers, it is their count, 0.
    octets = np.frombuffer(buffer, np.uint8)
    return not np.any((octets[fields.value_ends] != 0) & (fields.value_ends + 1 == fields.ends))


def _times(
    fields: Fields, headers: list[BatchHeader]
) -> tuple[Ints, "np.typing.NDArray[np.int32]"]:
    """Return timestamps and their types."""
    if any(abs(header.base_timestamp) >= _LARGEST_BASE for header in headers):
        raise _Unusual("timestamps that may overflow")

    counts = [header.count for header in headers]
    bases = np.array([header.base_timestamp for header in headers])
    timestamps = np.repeat(bases, counts) + fields.timestamp_deltas
    types = np.repeat(np.array([header.timestamp_type for header in headers], np.int32), counts)

    # LogAppendTime: the broker's time in the header counts for all records.
    if types.any():
        appended = np.array([header.max_timestamp for header in headers])
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
