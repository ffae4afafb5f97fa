"""Walk the batches of a log file by their headers, without reading their records.

All formats start with int64 offset | int32 size | 4 bytes | int8 magic. Format 2 carries the
first offset and the distance to the last. In formats 0 and 1 an entry is one message, or a
compressed wrapper whose offset is that of its last message, so the offset is the last one. A file
may end within a batch: the rest of it is not a batch.

Whoever reads whole segments of small batches turns a loop a million times. So the walk over good
batches of format 2 makes as few calls as there can be. `_walk` reads all others, and says what is
wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from core_log.storage import ReadableFile
from protocol.bounds import MAX_ARRAY_BYTES
from protocol.records.batch_header import (
    CONTROL,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
    read_header,
)
from protocol.records.checksums import check_entry
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import NO_TIMESTAMP, decode_message, read_message_header

# The fields of a message of format 0: crc, magic, attributes, two lengths.
MIN_RECORD_BYTES = 14
# Bytes per read: where a search begins, and where whole segments are read.
SCAN_BYTES = 16 * 1024
RECOVERY_BYTES = 1024 * 1024

# base offset, size, leader epoch, magic, (crc, attributes), last offset delta,
# (first timestamp), max timestamp
_V2 = struct.Struct(">qiib6xi8xq")
# base offset, size, leader epoch, magic, crc, attributes, last offset delta, (first timestamp),
# max timestamp
_CHECKED = struct.Struct(">qiibIhi8xq")
# (base offset), size, (leader epoch), magic, (crc, attributes), last offset delta, (two
# timestamps), producer id
_PRODUCED = struct.Struct(">8xi4xb6xi16xq")
_ENVELOPE = struct.Struct(">qi4xB")
_V1_TIMESTAMP = struct.Struct(">q")


class ShallowBatch(NamedTuple):
    """A batch's position and the fields of its header. Only `scan_checked` sets `is_control`."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp: int
    magic: int
    is_control: bool = False

    @property
    def end_position(self) -> int:
        """Position of the next batch."""
        return self.position + self.size


def scan(file: ReadableFile, start: int = 0) -> Iterator[ShallowBatch]:
    """Yield the whole batches from position `start` on. Raises CorruptRecord."""
    for batch, _ in _walk(file, start, SCAN_BYTES, bodies=False):
        yield batch


def scan_checked(file: ReadableFile) -> Iterator[ShallowBatch]:
    """Yield the whole batches of a file, and check the checksum of each. Raises CorruptRecord."""
    position = 0
    end = file.size
    is_more = True
    while is_more:
        # Most batches are good ones of format 2.
        chunk = memoryview(file.read(position, min(RECOVERY_BYTES, end - position)))
        start = position
        for batch in _good_batches(chunk, start):
            yield batch
            position = batch.end_position

        # The slow walk reads up to the next batch of format 2, or raises.
        is_more = position > start
        if not is_more:
            for batch, body in _up_to_a_batch(file, position, RECOVERY_BYTES, bodies=True):
                header = read_header(body) if batch.magic == 2 else read_message_header(body)
                check_entry(body, 0, header)
                yield batch._replace(is_control=True) if header.is_control else batch
                position = batch.end_position
                is_more = True


def _good_batches(chunk: memoryview, start: int) -> Iterator[ShallowBatch]:
    """Yield the good batches of format 2 at the beginning of a chunk, up to any other.

    The chunk is the file's from `start` on.
    """
    unpack = _CHECKED.unpack_from
    # Makes the tuple in one call, without the class's own constructor.
    new = tuple.__new__
    end = len(chunk)
    at = 0
    while end - at >= HEADER_BYTES:
        offset, length, epoch, magic, crc, attributes, delta, max_timestamp = unpack(chunk, at)
        stop = at + length + LOG_OVERHEAD
        # The slow walk goes on: with an old message, a long batch, or damage.
        if magic != 2 or not at + HEADER_BYTES <= stop <= end or delta < 0:
            return
        if crc32c(chunk[at + CRC_COVERS_FROM : stop]) != crc:
            return

        place, offsets = (start + at, stop - at), (offset, offset + delta)
        is_control = attributes & CONTROL > 0
        yield new(ShallowBatch, (*place, *offsets, epoch, max_timestamp, magic, is_control))
        at = stop


def scan_produced(file: ReadableFile, start: int = 0) -> Iterator[BatchHeader]:
    """Yield the headers from `start` on that name a producer. Raises CorruptRecord."""
    unpack = _PRODUCED.unpack_from
    new = tuple.__new__
    position = start
    end = file.size
    wanted = SCAN_BYTES
    is_more = True
    while is_more:
        chunk = file.read(position, min(wanted, end - position))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            length, magic, delta, producer_id = unpack(chunk, at)
            size = length + LOG_OVERHEAD
            if magic != 2 or not HEADER_BYTES <= size <= end - position - at or delta < 0:
                break
            # The whole header is decoded only for those who ask for it.
            if producer_id >= 0:
                yield new(BatchHeader, HEADER.unpack_from(chunk, at))
            at += size
            # Large batches are skipped: a header is all that is read of each.
            wanted = SCAN_BYTES if 4 * size < SCAN_BYTES else HEADER_BYTES
        position += at

        is_more = at > 0
        if not is_more:
            # The slow walk reads up to the next batch of format 2, or raises.
            for batch, head in _up_to_a_batch(file, position, SCAN_BYTES, bodies=False):
                if batch.magic == 2 and (header := read_header(head)).producer_id >= 0:
                    yield header
                position = batch.end_position
                is_more = True


def _up_to_a_batch(
    file: ReadableFile, position: int, chunk_bytes: int, *, bodies: bool
) -> Iterator[tuple[ShallowBatch, memoryview]]:
    """Walk old messages from `position` on, and the first batch behind them.

    Raises CorruptRecord.
    """
    for batch, body in _walk(file, position, chunk_bytes, bodies=bodies):
        yield batch, body
        if batch.magic == 2:
            return


def begins_at_or_below(offset: int, file: ReadableFile, batch: ShallowBatch) -> bool:
    """Return whether a batch's first offset is `offset` or less. Raises CorruptRecord.

    A compressed message of formats 0 and 1 is opened for that: old brokers index those by their
    first offset.
    """
    if batch.base_offset <= offset or batch.magic >= 2:
        return batch.base_offset <= offset
    body = file.read(batch.position, batch.size)
    header = read_message_header(body)
    return decode_message(body, 0, header, max_decompressed=MAX_ARRAY_BYTES)[0][0] <= offset


def parse(chunk: memoryview, at: int, position: int) -> ShallowBatch:
    """Read the header at `at` of `chunk`, which is at `position` of its file.

    The chunk has the whole header, or, in the old formats, the whole message. Raises
    CorruptRecord.
    """
    offset, size, magic = _ENVELOPE.unpack_from(chunk, at)
    total = LOG_OVERHEAD + size
    if size < MIN_RECORD_BYTES or magic > 2:
        raise CorruptRecord(f"no batch at position {position}: size {size}, magic {magic}")

    # Format 2 names its first offset, and the distance to its last.
    if magic == 2:
        _, _, epoch, _, delta, max_timestamp = _V2.unpack_from(chunk, at)
        if total < HEADER_BYTES or delta < 0:
            raise CorruptRecord(f"no batch at position {position}: size {size}, delta {delta}")
        return ShallowBatch(position, total, offset, offset + delta, epoch, max_timestamp, magic)

    # Formats 0 and 1 name their last offset. Only format 1 has a time, at 18.
    timestamp = _V1_TIMESTAMP.unpack_from(chunk, at + 18)[0] if magic == 1 else NO_TIMESTAMP
    return ShallowBatch(position, total, offset, offset, -1, timestamp, magic)


def _walk(
    file: ReadableFile, position: int, chunk_bytes: int, *, bodies: bool
) -> Iterator[tuple[ShallowBatch, memoryview]]:
    """Yield batches with their bytes if `bodies`, else at least with those of their headers.

    One read serves all the batches that it holds. Of batches too large for that only the headers
    are read.
    """
    chunk = memoryview(b"")
    chunk_start = position
    wanted = chunk_bytes
    end = file.size
    while position + LOG_OVERHEAD + MIN_RECORD_BYTES <= end:
        at = position - chunk_start
        # Read on if the chunk ends within a header. An old message may be shorter than one.
        if len(chunk) - at < HEADER_BYTES and chunk_start + len(chunk) < end:
            chunk = memoryview(file.read(position, min(wanted, end - position)))
            chunk_start, at = position, 0

        # At the file's end a short message is padded with zeros, for the parser.
        if len(chunk) - at < HEADER_BYTES:
            chunk = memoryview(bytes(chunk[at:]).ljust(HEADER_BYTES, b"\0"))
            chunk_start, at = position, 0

        # The file may end within a batch.
        batch = parse(chunk, at, position)
        if batch.end_position > end:
            return

        # Read the whole batch if it is asked for.
        if bodies and len(chunk) - at < batch.size:
            size = max(batch.size, min(chunk_bytes, end - position))
            chunk = memoryview(file.read(position, size))
            chunk_start, at = position, 0
        yield batch, chunk[at : at + batch.size]
        position = batch.end_position
        # Read ahead only where more batches fit into one read.
        wanted = chunk_bytes if bodies or 4 * batch.size < chunk_bytes else HEADER_BYTES
