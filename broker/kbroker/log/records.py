"""The records of one entry of a log, with what a consumer is not told: checksums and sequences.

Messages of the formats before may be wrapped in a compressed one, and have checksums of their own;
records of a batch have none but the batch's. What the checksums say is told, not insisted on: the
records of a damaged entry are read as far as they are to be understood.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from broker.kbroker.log.entries import Entry
from core_log.producers.producer_state import MAX_SEQUENCE, NONE
from protocol.bounds import MAX_ARRAY_BYTES
from protocol.records.batch_header import HEADER_BYTES, BatchHeader
from protocol.records.compression import Codec, decompress
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.legacy import (
    LOG_APPEND_TIME_TYPE,
    SMALLEST_ENTRY,
    MessageHeader,
    read_message_header,
    size_at,
)
from protocol.records.lz4_header import with_true_checksum
from protocol.records.record_walk import Headers, walk
from protocol.records.validate import decompress_records

_INT32 = Struct(">i")
_KEY_AT = (18, 26)
"""By format: where a message's key begins, behind its length."""
_CRC_COVERS_FROM = 16


class LoggedRecord(NamedTuple):
    """A record; `crc` is None, and `is_valid` says nothing, for one that has no checksum."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sequence: int = NONE
    crc: int | None = None
    is_valid: bool = True


def sequence_after(sequence: int, delta: int) -> int:
    """A sequence number `delta` further on; they go on with 0, and none stays none."""
    return NONE if sequence == NONE else (sequence + delta) % (MAX_SEQUENCE + 1)


def records(entry: Entry) -> list[LoggedRecord]:
    """All records of an entry. Raises CorruptRecord and CompressionUnavailable."""
    header = entry.header
    if isinstance(header, MessageHeader):
        try:
            return _messages(entry.data, header)
        except error as short:
            raise CorruptRecord(f"a message without room for its fields: {short}") from short
    return _records(entry.data, header)


def check_records(entry: Entry) -> None:
    """Hold the records of an entry to its header, without keeping them. Raises as `records`."""
    header = entry.header
    if isinstance(header, MessageHeader):
        last = records(entry)[-1].offset
    elif header.count > 0:
        body = decompress_records(entry.data, 0, header, MAX_ARRAY_BYTES)
        _, delta = walk(body, header.count, strict=False)
        last = header.base_offset + delta
    else:
        last = header.last_offset
        if header.count < 0 or header.size > HEADER_BYTES:
            raise CorruptRecord(f"batch of {header.size} bytes says {header.count} records")
    if last > header.last_offset:
        raise CorruptRecord(f"its last record has offset {last}, not {header.last_offset}")


def _records(data: memoryview, header: BatchHeader) -> list[LoggedRecord]:
    if header.count == 0:
        return []
    if header.count < 0:
        raise CorruptRecord(f"batch says {header.count} records")
    rows: list[tuple[int, int, bytes | None, bytes | None, Headers]] = []
    walk(
        decompress_records(data, 0, header, MAX_ARRAY_BYTES),
        header.count,
        strict=False,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        rows=rows,
    )
    appended_at = header.max_timestamp if header.timestamp_type else None
    return [
        LoggedRecord(
            offset,
            timestamp if appended_at is None else appended_at,
            key,
            value,
            headers,
            sequence_after(header.base_sequence, offset - header.base_offset),
        )
        for offset, timestamp, key, value, headers in rows
    ]


def _messages(data: memoryview, header: MessageHeader) -> list[LoggedRecord]:
    if header.codec is Codec.NONE:
        return [_message(data, 0, header)]
    packed = _message(data, 0, header).value
    if packed is None:
        raise CorruptRecord("a compressed message has a null value")
    if header.codec is Codec.LZ4 and header.magic == 0:
        packed = with_true_checksum(packed)
    inner = list(_wrapped(decompress(header.codec, packed, MAX_ARRAY_BYTES)))
    if not inner:
        raise CorruptRecord("a compressed message holds none")
    base_offset = 0
    if header.magic and header.offset:  # they count from 0, and end with the wrapper's
        base_offset = header.offset - inner[-1].offset
    appended_at = header.timestamp if header.timestamp_type == LOG_APPEND_TIME_TYPE else None
    return [
        each._replace(
            offset=base_offset + each.offset,
            timestamp=each.timestamp if appended_at is None else appended_at,
        )
        for each in inner
    ]


def _wrapped(data: bytes) -> Iterator[LoggedRecord]:
    position = 0
    while len(data) - position >= SMALLEST_ENTRY:
        size = size_at(data, position)
        if not SMALLEST_ENTRY <= size <= len(data) - position:
            return
        header = read_message_header(data, position)
        yield _message(memoryview(data), position, header)
        position += size


def _message(data: memoryview, start: int, header: MessageHeader) -> LoggedRecord:
    end = start + header.size
    key, at = _field(data, start + _KEY_AT[header.magic], end)
    value, _ = _field(data, at, end)
    is_valid = zlib.crc32(data[start + _CRC_COVERS_FROM : end]) == header.crc
    return LoggedRecord(
        header.offset, header.timestamp, key, value, crc=header.crc, is_valid=is_valid
    )


def _field(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    (length,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptRecord(f"a length of {length} with {end - at} bytes left")
    return bytes(data[at : at + length]), at + length
