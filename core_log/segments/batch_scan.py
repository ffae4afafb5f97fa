"""Walk the batches of a log file by their headers, without reading what they hold.

All formats start with int64 offset | int32 size | 4 bytes | int8 magic. Format 2 carries the
first offset and the distance to the last; in formats 0 and 1 an entry is one message, or a
compressed wrapper whose offset is that of its last message, so that the offset is the last one.
A file may end within a batch: what is left of it is not a batch.

Whoever reads whole segments of small batches turns a loop a million times. So batches of format 2
that are as they should be are gone through with as few calls as there can be; `_walk` reads all
others, and knows what is wrong.
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
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import check_entry
from protocol.records.legacy import NO_TIMESTAMP, decode_message, read_message_header

MIN_RECORD_BYTES = 14
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
    """What a batch's header says, and where the batch is. Whether it is a transaction's marker only
    `scan_checked` tells."""

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
        """Where the next batch starts."""
        return self.position + self.size


def scan(file: ReadableFile, start: int = 0) -> Iterator[ShallowBatch]:
    """The whole batches from position `start` on. Raises CorruptRecord."""
    for batch, _ in _walk(file, start, SCAN_BYTES, bodies=False):
        yield batch


def scan_checked(file: ReadableFile) -> Iterator[ShallowBatch]:
    """The whole batches, each read and its checksum tested. Raises CorruptRecord."""
    position, end, is_more = 0, file.size, True
    while is_more:
        chunk, start = (
            memoryview(file.read(position, min(RECOVERY_BYTES, end - position))),
            position,
        )
        for batch in _good_batches(chunk, start):
            yield batch
            position = batch.end_position

        is_more = position > start
        if not is_more:
            for batch, body in _up_to_a_batch(file, position, RECOVERY_BYTES, bodies=True):
                header = read_header(body) if batch.magic == 2 else read_message_header(body)
                check_entry(body, 0, header)
                yield batch._replace(is_control=True) if header.is_control else batch
                position, is_more = batch.end_position, True


def _good_batches(chunk: memoryview, start: int) -> Iterator[ShallowBatch]:
    """The batches with which a chunk begins, which is the file's from `start` on: up to one that is
    not whole, not of format 2, or not good."""
    unpack, new, end = _CHECKED.unpack_from, tuple.__new__, len(chunk)
    at = 0
    while end - at >= HEADER_BYTES:
        offset, length, epoch, magic, crc, attributes, delta, max_timestamp = unpack(chunk, at)
        stop = at + length + LOG_OVERHEAD
        if magic != 2 or not at + HEADER_BYTES <= stop <= end or delta < 0:
            return
        if crc32c(chunk[at + CRC_COVERS_FROM : stop]) != crc:
            return

        place, offsets = (start + at, stop - at), (offset, offset + delta)
        is_control = attributes & CONTROL > 0
        yield new(ShallowBatch, (*place, *offsets, epoch, max_timestamp, magic, is_control))
        at = stop


def scan_produced(file: ReadableFile, start: int = 0) -> Iterator[BatchHeader]:
    """The headers of the batches from `start` on that name their producer. Raises CorruptRecord."""
    unpack, new, position, end = _PRODUCED.unpack_from, tuple.__new__, start, file.size
    wanted, is_more = SCAN_BYTES, True
    while is_more:
        chunk = file.read(position, min(wanted, end - position))
        at = 0
        while len(chunk) - at >= HEADER_BYTES:
            length, magic, delta, producer_id = unpack(chunk, at)
            size = length + LOG_OVERHEAD
            if magic != 2 or not HEADER_BYTES <= size <= end - position - at or delta < 0:
                break
            if producer_id >= 0:
                yield new(BatchHeader, HEADER.unpack_from(chunk, at))
            at += size
            wanted = SCAN_BYTES if 4 * size < SCAN_BYTES else HEADER_BYTES
        position += at

        is_more = at > 0
        if not is_more:
            for batch, head in _up_to_a_batch(file, position, SCAN_BYTES, bodies=False):
                if batch.magic == 2 and (header := read_header(head)).producer_id >= 0:
                    yield header
                position, is_more = batch.end_position, True


def _up_to_a_batch(
    file: ReadableFile, position: int, chunk_bytes: int, *, bodies: bool
) -> Iterator[tuple[ShallowBatch, memoryview]]:
    """Old messages from `position` on, and the first batch behind them. Raises CorruptRecord."""
    for batch, body in _walk(file, position, chunk_bytes, bodies=bodies):
        yield batch, body
        if batch.magic == 2:
            return


def begins_at_or_below(offset: int, file: ReadableFile, batch: ShallowBatch) -> bool:
    """Whether a batch's first offset is `offset` or less. For it a message of formats 0 and 1 that
    holds others is opened: brokers of old index those by their first. Raises CorruptRecord."""
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
    if magic == 2:
        _, _, epoch, _, delta, max_timestamp = _V2.unpack_from(chunk, at)
        if total < HEADER_BYTES or delta < 0:
            raise CorruptRecord(f"no batch at position {position}: size {size}, delta {delta}")
        return ShallowBatch(position, total, offset, offset + delta, epoch, max_timestamp, magic)
    timestamp = _V1_TIMESTAMP.unpack_from(chunk, at + 18)[0] if magic == 1 else NO_TIMESTAMP
    return ShallowBatch(position, total, offset, offset, -1, timestamp, magic)


def _walk(
    file: ReadableFile, position: int, chunk_bytes: int, *, bodies: bool
) -> Iterator[tuple[ShallowBatch, memoryview]]:
    """Batches, each with its bytes if `bodies`, else with those of its header at least.

    One read serves as many as it holds; of batches too large for that the headers alone are read.
    """
    chunk, chunk_start, wanted, end = memoryview(b""), position, chunk_bytes, file.size
    while position + LOG_OVERHEAD + MIN_RECORD_BYTES <= end:
        at = position - chunk_start
        if len(chunk) - at < HEADER_BYTES and chunk_start + len(chunk) < end:
            chunk = memoryview(file.read(position, min(wanted, end - position)))
            chunk_start, at = position, 0
        if len(chunk) - at < HEADER_BYTES:
            chunk = memoryview(
                bytes(chunk[at:]).ljust(HEADER_BYTES, b"\0")
            )  # an old message is short
            chunk_start, at = position, 0
        batch = parse(chunk, at, position)
        if batch.end_position > end:
            return
        if bodies and len(chunk) - at < batch.size:
            chunk = memoryview(
                file.read(position, max(batch.size, min(chunk_bytes, end - position)))
            )
            chunk_start, at = position, 0
        yield batch, chunk[at : at + batch.size]
        position = batch.end_position
        wanted = chunk_bytes if bodies or 4 * batch.size < chunk_bytes else HEADER_BYTES
