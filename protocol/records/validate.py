"""Validate the batches that clients send: a broker believes nothing they say.

A batch is stored and fetched as it was sent, so a batch with a false field would break all
consumers of the partition and stop the cleaner. Kafka therefore reads each record before it
appends, compressed or not (LogValidator), and so do we. A transaction marker is refused because
only brokers write it.
"""

from typing import NamedTuple

from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.records.batch_header import (
    CONTROL,
    HEADER_BYTES,
    BatchHeader,
    codec_of,
)
from protocol.records.checksums import check_crc
from protocol.records.compression import Codec, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_walk import walk
from protocol.records.room import Room


class CheckedRecords(NamedTuple):
    """The findings about a valid batch.

    `max_timestamp`: true greatest timestamp of the records in ms; that of the header may be wrong.
    `size`: bytes of the records, decompressed.
    """

    max_timestamp: int
    size: int


def validate_batch(
    buf: bytes | bytearray | memoryview,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    max_decompressed: int | Room = MAX_DECOMPRESSED_BYTES,
) -> CheckedRecords:
    """Check a produced batch, from its CRC to its last record; `buf` holds only this batch.

    `require_keys` is the rule of a compacted topic. Raises CorruptRecord, which names the record
    and what is wrong with it, and CompressionUnavailable.
    """
    # The header first: it is cheap.
    if header.size != len(buf):
        raise CorruptRecord(f"batch length says {header.size} bytes, {len(buf)} were sent")
    check_crc(buf, 0, header)
    _check_header(header)

    # Then each record.
    body = decompress_records(buf, 0, header, max_decompressed)
    newest_delta, _ = walk(body, header.count, strict=True, require_keys=require_keys)

    # Base and delta have 64 bits each, their sum may have more.
    max_timestamp = header.base_timestamp + newest_delta
    if not -(1 << 63) <= max_timestamp < 1 << 63:
        raise CorruptRecord(f"timestamp {max_timestamp} is outside of 64 bits")
    return CheckedRecords(max_timestamp, len(body))


def _check_header(header: BatchHeader) -> None:
    # Only the leader gives offsets, and only brokers write markers.
    if header.base_offset != 0:
        raise CorruptRecord(f"base offset of a produced batch is {header.base_offset}, not 0")
    if header.attributes & CONTROL:
        raise CorruptRecord("clients may not write control batches")

    # Compaction makes gaps and empty batches, a client must not (LogValidator).
    if header.count <= 0:
        raise CorruptRecord(f"batch says {header.count} records")
    if header.count != header.last_offset_delta + 1:
        raise CorruptRecord(
            f"batch says {header.count} records but last offset delta {header.last_offset_delta}"
        )

    # Without a sequence the producer's duplicates could not be found.
    if header.producer_id != -1 and header.base_sequence < 0:
        raise CorruptRecord(
            f"producer id {header.producer_id} with base sequence {header.base_sequence}"
        )


def decompress_records(
    buf: bytes | bytearray | memoryview, pos: int, header: BatchHeader, max_decompressed: int | Room
) -> bytes:
    """Return the records of the batch at `pos`, decompressed.

    Raises CorruptRecord and CompressionUnavailable.
    """
    stored = memoryview(buf)[pos + HEADER_BYTES : pos + header.size]
    codec = codec_of(header.attributes)
    return bytes(stored) if codec is Codec.NONE else decompress(codec, stored, max_decompressed)
