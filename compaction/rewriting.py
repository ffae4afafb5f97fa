"""A batch of which some records stay: its bytes with those alone. Pure.

A record's bytes count from its batch's first offset and timestamp, so if these are kept the records
are copied as they are. Kept as well: the last offset, for the last number of a producer follows
from it, leader epoch, producer, flags and codec. New: count, greatest timestamp, length, CRC.
"""

from __future__ import annotations

from itertools import compress as chosen

from crc32c import crc32c

from compaction.source import Records
from protocol.records.batch_header import (
    CODEC_MASK,
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    BatchHeader,
)
from protocol.records.compression import compress
from protocol.records.legacy import NO_TIMESTAMP


def with_records(header: BatchHeader, records: Records, first: int, keep: bytes) -> bytes:
    """The batch whose records begin in row `first`, with those that `keep` has a 1 for.

    Raises CompressionUnavailable.
    """
    buffer, spans, _ = records
    last = first + len(keep)
    starts = chosen(spans.starts[first:last], keep)
    ends = chosen(spans.ends[first:last], keep)
    body = b"".join([buffer[start:end] for start, end in zip(starts, ends, strict=True)])
    max_timestamp = header.max_timestamp
    if header.timestamp_type == 0:
        deltas = chosen(spans.timestamp_deltas[first:last], keep)
        max_timestamp = header.base_timestamp + max(deltas)
    return _summed(
        header._replace(max_timestamp=max_timestamp, count=keep.count(1)),
        compress(header.codec, body),
    )


def emptied(header: BatchHeader) -> bytes:
    """The batch without records, which says no more than what its producer wrote last."""
    return _summed(
        header._replace(
            attributes=header.attributes & ~CODEC_MASK, base_timestamp=NO_TIMESTAMP, count=0
        ),
        b"",
    )


def _summed(header: BatchHeader, body: bytes) -> bytes:
    length = HEADER_BYTES - LOG_OVERHEAD + len(body)
    head = HEADER.pack(*header._replace(length=length, crc=0))
    crc = crc32c(body, crc32c(head[CRC_COVERS_FROM:]))
    return b"".join((head[:CRC_AT], crc.to_bytes(4, "big"), head[CRC_COVERS_FROM:], body))
