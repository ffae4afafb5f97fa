"""Read a segment that is being cleaned in large pieces of whole batches, and check their checksums.

A piece is as large as a read, or as its one batch: a batch may be larger than any setting says, if
the setting was lowered after it was written (KAFKA-6834). Bytes are checked before they are
believed: if a damaged batch were rewritten, it would get a checksum that says all is well. One
check in a run is enough.

A batch with the right checksum whose records cannot be read was written so: it is larger than we
open, or its writer was wrong. Its keys are unknown, so it stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from compaction.job import SourceSegment
from compaction.keys import Keys
from core_log.segments.file_name import LOG, file_name
from core_log.storage import Directory, StorageFile
from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.records.batch_header import (
    CODEC_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    codec_of,
    read_header,
)
from protocol.records.compression import Codec, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import BYTES_TO_MAGIC, MAGIC_AT, read_entry
from protocol.records.legacy import (
    MessageHeader,
    check_message_crc,
    decode_message,
    read_message_header,
    size_at,
)
from protocol.records.record_run import Row
from protocol.records.record_spans import record_spans
from protocol.records.spans import Bodies, Spans

LEAST_READ_BYTES = 4 * 1024 * 1024
"""Least bytes read at once, however small the setting: the records share the cost of a piece."""
DECOMPRESSED_AT_ONCE_BYTES = 16 * 1024 * 1024
"""Bytes that are decompressed at once. One batch may exceed them."""
_ROOM_BEHIND = bytes(8)


# Base offset, length, magic, crc, attributes, last offset delta, greatest timestamp, producer id,
# count; the leader epoch, first timestamp, epoch and sequence of the producer are left out.
_HEADER: Final = Struct(">qi4xbIhi8xqq6xi")
_KIND: Final = CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
OLD: Final = _KIND + 1


class Batches(NamedTuple):
    """Columns, a row for each batch or old message: many batches are small, and objects cost.

    Starts and ends are places in the piece. A kind is the attributes' low bits, or OLD for a
    format before batches: then the offsets are those of the last message, and the count is 0.
    """

    starts: list[int]
    ends: list[int]
    kinds: bytearray
    first_offsets: list[int]
    last_offsets: list[int]
    max_timestamps: list[int]
    producer_ids: list[int]
    counts: list[int]

    @property
    def are_plain(self) -> bool:
        """True if all are batches of data, and of no transaction."""
        return max(self.kinds) < TRANSACTIONAL


class Piece(NamedTuple):
    """Whole batches of a segment, from `position` on to `end`."""

    name: str
    position: int
    end: int
    data: bytes
    batches: Batches

    @property
    def size(self) -> int:
        """Bytes of its batches. `data` may have a part of the next one behind them."""
        return self.end - self.position

    def header(self, row: int) -> BatchHeader:
        """Read the whole header of a batch."""
        return read_header(self.data, self.batches.starts[row])

    def message_header(self, row: int) -> MessageHeader:
        """Read the header of an old message."""
        return read_message_header(self.data, self.batches.starts[row])


def read_pieces(
    directory: Directory, segment: SourceSegment, io_bytes: int, *, is_checked: bool = False
) -> Iterator[Piece]:
    """Read all of a segment. One that `is_checked`, in this run, is not checked again.

    Raises CorruptRecord, which names file, position and offset, and OSError (FileNotFoundError if
    the segment is gone).
    """
    name = file_name(segment.base_offset, LOG)
    file = directory.open_existing(name)
    position = 0
    last_offset = segment.base_offset - 1

    while position < segment.size:
        data = _read(file, name, position, segment.size, max(io_bytes, LEAST_READ_BYTES))
        batches = _whole_batches(data, name, position, last_offset, is_checked)
        end = position + batches.ends[-1]
        yield Piece(name, position, end, data, batches)
        position = end
        # Offsets go up across pieces too.
        last_offset = batches.last_offsets[-1]


def _read(file: StorageFile, name: str, position: int, size: int, wanted: int) -> bytes:
    """Read at least one whole batch; more than `wanted` bytes only for a batch that is larger."""
    data = file.read(position, min(wanted, size - position))
    needed = size_at(data, 0) if len(data) >= LOG_OVERHEAD else BYTES_TO_MAGIC

    # A batch that is larger than the piece is read alone.
    if needed > len(data):
        if needed > size - position or file.size < position + needed:
            # It reaches beyond the segment as it was, or the file was truncated.
            raise _corrupt(name, position, data, f"{needed} bytes do not fit in what is left")
        data = file.read(position, needed)
    return data


def _whole_batches(
    data: bytes, name: str, position: int, last_offset: int, is_checked: bool
) -> Batches:
    # Segments may hold a million small batches: one pass, few calls for each.
    batches = Batches([], [], bytearray(), [], [], [], [], [])
    starts, ends, kinds, first_offsets, last_offsets, max_timestamps, producer_ids, counts = batches
    view = memoryview(data)
    end = len(data)
    pos = 0

    try:
        while end - pos >= BYTES_TO_MAGIC:
            # Read a header of format 2, or an old message.
            if data[pos + MAGIC_AT] == MAGIC and end - pos >= HEADER_BYTES:
                first, length, _, crc, attributes, delta, max_timestamp, producer_id, count = (
                    _HEADER.unpack_from(data, pos)
                )
                stop = pos + length + LOG_OVERHEAD
                # A partial batch at the end begins the next piece.
                if stop > end and starts:
                    break
                if stop < pos + HEADER_BYTES or delta < 0 or count < 0:
                    raise CorruptRecord(f"length {length}, delta {delta}, count {count}")
                if not is_checked and crc32c(view[pos + CRC_COVERS_FROM : stop]) != crc:
                    raise CorruptRecord("its CRC is wrong")
                kinds.append(attributes & _KIND)
                last = first + delta
            else:
                message = read_entry(data, pos, end)
                if message is None:
                    break
                assert isinstance(message, MessageHeader)
                stop, producer_id, count = pos + message.size, -1, 0
                kinds.append(OLD)
                first = last = message.offset
                max_timestamp = message.timestamp

            # Add a row.
            if first <= last_offset:
                raise CorruptRecord(f"it follows offset {last_offset}")
            starts.append(pos)
            ends.append(stop)
            first_offsets.append(first)
            last_offsets.append(last)
            max_timestamps.append(max_timestamp)
            producer_ids.append(producer_id)
            counts.append(count)

            last_offset = last
            pos = stop
    except CorruptRecord as error:
        raise _corrupt(name, position + pos, data[pos : pos + 8], str(error)) from None

    if not starts:
        raise _corrupt(name, position, data, "it is no whole batch")
    return batches


def _corrupt(name: str, position: int, head: bytes, why: str) -> CorruptRecord:
    offset = int.from_bytes(head[:8], "big", signed=True)
    return CorruptRecord(f"{name}, position {position}, offset {offset}: {why}")


class Records(NamedTuple):
    """The records of some batches of a piece.

    `firsts` has the row of each batch's first record, and then the number of all. The spans'
    positions are places in `buffer`.
    """

    buffer: bytes
    spans: Spans
    firsts: list[int]

    @property
    def keys(self) -> Keys:
        """The keys of all records."""
        return Keys(self.buffer, self.spans.key_starts, self.spans.key_ends)


def read_records(piece: Piece, rows: Sequence[int]) -> Records:
    """Read the records of the first of the batches in `rows`.

    That is all of them, unless decompressing them takes too much memory at once. Raises
    CorruptRecord and CompressionUnavailable.
    """
    try:
        buffer, bodies = _bodies(piece, rows)
        spans = record_spans(buffer, bodies)
    except CorruptRecord as error:
        raise CorruptRecord(f"{piece.name}, from position {piece.position}: {error}") from None
    return Records(buffer, spans, list(accumulate(bodies.counts, initial=0)))


def open_batches(
    piece: Piece, rows: Sequence[int]
) -> Iterator[tuple[Sequence[int], Records | None]]:
    """Yield the records of all batches in `rows`, of as many at once as `read_records` reads.

    The row of a batch that cannot be opened comes with None. Raises CompressionUnavailable.
    """
    while rows:
        try:
            records = read_records(piece, rows)
        except CorruptRecord:
            break
        count = len(records.firsts) - 1
        yield rows[:count], records
        rows = rows[count:]

    if len(rows) == 1:
        yield rows, None
    else:
        # One by one, to find the batch that cannot be opened.
        for row in rows:
            yield from open_batches(piece, [row])


def _bodies(piece: Piece, rows: Sequence[int]) -> tuple[bytes, Bodies]:
    """Find where the records are: in the piece itself, unless some of them are compressed."""
    batches = piece.batches
    buffer = piece.data
    # One compressed batch is enough: all records must lie in one buffer.
    if any(batches.kinds[row] & CODEC_MASK for row in rows):
        buffer, places = _decompressed(piece, rows)
        starts, ends = places[:-1], places[1:]
        rows = rows[: len(ends)]
    else:
        starts = [batches.starts[row] + HEADER_BYTES for row in rows]
        ends = [batches.ends[row] for row in rows]
    counts = [batches.counts[row] for row in rows]
    return buffer, Bodies(starts, ends, counts, [batches.first_offsets[row] for row in rows])


def _decompressed(piece: Piece, rows: Sequence[int]) -> tuple[bytes, list[int]]:
    """Decompress the records of the first of `rows`.

    Returns them, with the places where each batch's begin and the last one's end. Some free bytes
    follow, so that `record_spans` need not copy all to have room there.
    """
    batches, data = piece.batches, memoryview(piece.data)
    parts: list[bytes] = []
    places = [0]
    for row in rows:
        # Uncompressed batches are copied, to have all records in one buffer.
        stored = data[batches.starts[row] + HEADER_BYTES : batches.ends[row]]
        codec = codec_of(batches.kinds[row])
        parts.append(
            bytes(stored)
            if codec is Codec.NONE
            else decompress(codec, stored, MAX_DECOMPRESSED_BYTES)
        )

        places.append(places[-1] + len(parts[-1]))
        # Memory is bounded: the caller comes back for the rest.
        if places[-1] >= DECOMPRESSED_AT_ONCE_BYTES:
            break
    return b"".join([*parts, _ROOM_BEHIND]), places


def marker_key(piece: Piece, row: int) -> bytes | None:
    """Read the key of a marker's record, None for an empty batch. Raises CorruptRecord."""
    # The cleaner leaves markers without a record, for their producers.
    keys = read_records(piece, [row]).keys.to_list()
    return keys[0] or b"" if keys else None


def read_messages(piece: Piece, row: int) -> list[Row] | None:
    """Read an old message, or those of a wrapper. Returns None if it cannot be opened.

    Its checksum is checked only here, for each is read in any case. Raises CorruptRecord if that is
    wrong, and CompressionUnavailable.
    """
    pos = piece.batches.starts[row]
    header = piece.message_header(row)
    try:
        check_message_crc(piece.data, pos, header)
    except CorruptRecord as error:
        head = piece.data[pos : pos + 8]
        raise _corrupt(piece.name, piece.position + pos, head, str(error)) from None

    try:
        return decode_message(piece.data, pos, header, max_decompressed=MAX_DECOMPRESSED_BYTES)
    except CorruptRecord:
        # The bytes are as they were written: the writer was wrong.
        return None
