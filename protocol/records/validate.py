"""What a broker believes of a batch that a client sends: nothing.

A batch is stored and fetched as it came, so a lie that is let in poisons every consumer of the
partition and stops the cleaner. Kafka therefore reads each record before it appends, compressed or
not (LogValidator), and so do we. A transaction marker is refused because only brokers write it.
"""

from typing import NamedTuple

from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.records.batch_header import HEADER_BYTES, BatchHeader, check_crc
from protocol.records.compression import Codec, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.record_walk import walk


class CheckedRecords(NamedTuple):
    """What was found out about a batch that may be believed: the true greatest timestamp in ms of
    its records, whatever the header says it is, and how many bytes they are, decompressed."""

    max_timestamp: int
    size: int


def validate_batch(
    buf: bytes | bytearray | memoryview,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    max_decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> CheckedRecords:
    """Check a produced batch, which `buf` holds and nothing else, from its CRC to its last record.

    `require_keys` is the rule of a compacted topic. Raises CorruptRecord, which says what lies and
    in which record, and CompressionUnavailable.
    """
    if header.size != len(buf):
        raise CorruptRecord(f"batch length says {header.size} bytes, {len(buf)} were sent")
    check_crc(buf, 0, header)
    _check_header(header)
    body = records_of(buf, 0, header, max_decompressed)
    newest_delta, _ = walk(body, header.count, strict=True, require_keys=require_keys)
    max_timestamp = header.base_timestamp + newest_delta
    if not -(1 << 63) <= max_timestamp < 1 << 63:
        raise CorruptRecord(f"timestamp {max_timestamp} is outside of 64 bits")
    return CheckedRecords(max_timestamp, len(body))


def _check_header(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise CorruptRecord(f"base offset of a produced batch is {header.base_offset}, not 0")
    if header.is_control:
        raise CorruptRecord("clients may not write control batches")
    if header.count <= 0:
        raise CorruptRecord(f"batch says {header.count} records")
    if header.count != header.last_offset_delta + 1:
        raise CorruptRecord(
            f"batch says {header.count} records but last offset delta {header.last_offset_delta}"
        )
    if header.producer_id != -1 and header.base_sequence < 0:
        raise CorruptRecord(
            f"producer id {header.producer_id} with base sequence {header.base_sequence}"
        )


def records_of(
    buf: bytes | bytearray | memoryview, pos: int, header: BatchHeader, max_decompressed: int
) -> bytes:
    """Return the records of the batch at `pos`, decompressed. Raises CorruptRecord."""
    stored = memoryview(buf)[pos + HEADER_BYTES : pos + header.size]
    codec = header.codec
    return bytes(stored) if codec is Codec.NONE else decompress(codec, stored, max_decompressed)
