"""Rewrite a batch of which some records stay. Pure.

A record's bytes count from its batch's first offset and timestamp. Both are kept, so the records
are copied as they are. Also kept are the leader epoch, producer, flags and codec, and the last
offset, from which a producer's last sequence number follows. New are the count, the greatest
timestamp, length and CRC.
"""

from __future__ import annotations

from itertools import compress as chosen
from struct import Struct
from typing import Final

from crc32c import crc32c

from compaction.source import Piece, Records
from protocol.records.batch_header import (
    CODEC_MASK,
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    codec_of,
)
from protocol.records.compression import compress
from protocol.records.legacy import NO_TIMESTAMP

_LENGTH_AT: Final = 8
_COVERED: Final = Struct(">hiqq14si")
"""The fields under the CRC: attributes, last offset delta, first and greatest timestamp, the
producer's three fields, count."""


def keep_records(
    piece: Piece, row: int, records: Records, first: int, keep: bytes, count: int
) -> tuple[bytes, int]:
    """Return the batch in `row` with some of its records, and its greatest timestamp.

    Its records begin in row `first` of `records`. `keep` has a 1 for each of the `count` that stay.
    Raises CompressionUnavailable.
    """
    # Copy the records.
    buffer, spans, _ = records
    last = first + len(keep)
    starts = chosen(spans.starts[first:last], keep)
    ends = chosen(spans.ends[first:last], keep)
    body = b"".join([buffer[start:end] for start, end in zip(starts, ends, strict=True)])

    # Change the header's fields.
    data, pos = piece.data, piece.batches.starts[row]
    attributes, delta, base_timestamp, max_timestamp, producer, _ = _COVERED.unpack_from(
        data, pos + CRC_COVERS_FROM
    )
    # Under LogAppendTime all records have the batch's time, which stays.
    if not attributes & LOG_APPEND_TIME:
        deltas = chosen(spans.timestamp_deltas[first:last], keep)
        max_timestamp = base_timestamp + max(deltas)
    if codec := attributes & CODEC_MASK:
        body = compress(codec_of(codec), body)
    covered = _COVERED.pack(attributes, delta, base_timestamp, max_timestamp, producer, count)

    # Put the batch together: base offset, epoch and magic as they were.
    length = HEADER_BYTES - LOG_OVERHEAD + len(body)
    parts = (
        data[pos : pos + _LENGTH_AT],
        length.to_bytes(4, "big"),
        data[pos + LOG_OVERHEAD : pos + CRC_AT],
        crc32c(body, crc32c(covered)).to_bytes(4, "big"),
        covered,
        body,
    )
    return b"".join(parts), max_timestamp


def empty_batch(header: BatchHeader) -> bytes:
    """Return the batch without records: only the last write of its producer can be read from it."""
    # As Kafka writes it: no codec, no first timestamp, producer and offsets as they were.
    header = header._replace(
        attributes=header.attributes & ~CODEC_MASK,
        base_timestamp=NO_TIMESTAMP,
        count=0,
        length=HEADER_BYTES - LOG_OVERHEAD,
    )
    head = HEADER.pack(*header)
    crc = crc32c(head[CRC_COVERS_FROM:])
    return head[:CRC_AT] + crc.to_bytes(4, "big") + head[CRC_COVERS_FROM:]
