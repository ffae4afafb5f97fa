"""Record batches, format 2: read them. The other modules' names for batches are gathered here.

A record set, on the wire as on disk, is a plain concatenation of batches. A batch is a header of 61
bytes (batch_header.py) and its records, uncompressed or compressed as one stream (record_walk.py).
Messages of the older formats (legacy.py) may stand between batches, and are read as batches of
their own. validate.py checks what clients send; builder.py writes batches.
Source: KIP-98 and the message format section of Kafka's documentation.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from protocol.bounds import MAX_DECOMPRESSED_BYTES
from protocol.records.batch_header import HEADER_BYTES, BatchHeader, read_header
from protocol.records.builder import BatchBuilder, encode_batch, encode_body
from protocol.records.checksums import check_crc
from protocol.records.compression import Codec
from protocol.records.corrupt_record import CorruptRecord, UnsupportedMagic
from protocol.records.entry import EntryHeader, read_entry
from protocol.records.legacy import MessageHeader, decode_message
from protocol.records.record_run import Row
from protocol.records.record_walk import Headers, walk
from protocol.records.validate import decompress_records, validate_batch

__all__ = [
    "HEADER_BYTES",
    "BatchBuilder",
    "BatchHeader",
    "Codec",
    "CorruptRecord",
    "Record",
    "UnsupportedMagic",
    "as_records",
    "check_crc",
    "decode_batch",
    "decode_records",
    "decode_rows",
    "decompress_records",
    "encode_batch",
    "encode_body",
    "next_offset",
    "read_header",
    "validate_batch",
]

Buffer = bytes | bytearray | memoryview


class Record(NamedTuple):
    """One record as a consumer sees it; a null value is a tombstone on a compacted topic."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def decode_batch(
    buf: Buffer,
    pos: int = 0,
    header: EntryHeader | None = None,
    *,
    max_decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> list[Record]:
    """Read the records of the batch at `pos`; pass its `header` if it is read already.

    Compaction leaves gaps between the offsets. With the header of a message of an old format, read
    that message. Raises CorruptRecord and CompressionUnavailable; UnsupportedMagic if no header is
    given and there is a message instead of a batch.
    """
    return as_records(decode_rows(buf, pos, header, max_decompressed=max_decompressed))


def as_records(rows: Iterable[Row]) -> list[Record]:
    """Turn rows into records. It takes a third of the time of reading the rows."""
    # In C throughout, without a call of Python for each record.
    return list(map(tuple.__new__, repeat(Record), rows))


def decode_rows(
    buf: Buffer,
    pos: int = 0,
    header: EntryHeader | None = None,
    *,
    max_decompressed: int = MAX_DECOMPRESSED_BYTES,
) -> list[Row]:
    """Do the same as `decode_batch`, but return rows."""
    if header is None:
        header = read_header(buf, pos)
    elif isinstance(header, MessageHeader):
        return decode_message(buf, pos, header, max_decompressed=max_decompressed)

    check_crc(buf, pos, header)
    if header.count < 0:
        raise CorruptRecord(f"batch says {header.count} records")

    # The cleaner keeps the header of an emptied batch, for the producer's state (KAFKA-5490).
    if header.count == 0:
        return []

    rows: list[Row] = []
    _, last_delta = walk(
        decompress_records(buf, pos, header, max_decompressed),
        header.count,
        strict=False,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        rows=rows,
    )

    # A record beyond the end of its batch would have an offset of the next one.
    if last_delta > header.last_offset_delta:
        raise CorruptRecord(
            f"last record has offset delta {last_delta}, the batch says {header.last_offset_delta}"
        )

    # LogAppendTime: the broker's time in the header counts for all records.
    if header.timestamp_type:
        time = header.max_timestamp
        return [(offset, time, key, value, headers) for offset, _, key, value, headers in rows]
    return rows


def decode_records(buf: Buffer, min_offset: int = 0) -> list[Record]:
    """Read the records from `min_offset` on of all whole batches in a fetched record set.

    A record set may end with a part of a batch, because a broker sends at most the number of bytes
    requested. Transaction markers are left out; `next_offset` returns where to continue. Raises as
    `decode_batch` does.
    """
    records: list[Record] = []
    for pos, header in _whole_batches(buf):
        if header.next_offset <= min_offset:
            continue

        # The checksum covers the control bit: decode before looking at it.
        batch = decode_batch(buf, pos, header)
        if header.is_control:
            continue

        # A batch is sent from its beginning, also where the offset requested is inside it.
        if batch and batch[0].offset < min_offset:
            batch = [record for record in batch if record.offset >= min_offset]
        records += batch
    return records


def next_offset(buf: Buffer) -> int | None:
    """Return the offset after the last whole batch of a record set; None if it has no whole batch.

    It may be larger than the last record's offset plus one: after transaction markers, and where
    compaction has removed the end of a batch. A consumer that looked only at records would fetch
    such a batch forever.
    """
    offset = None
    for _, header in _whole_batches(buf):
        offset = header.next_offset
    return offset


def _whole_batches(buf: Buffer) -> Iterator[tuple[int, EntryHeader]]:
    pos = 0
    end = len(buf)
    while (header := read_entry(buf, pos, end)) is not None:
        yield pos, header
        pos += header.size
