"""Read the records of one log entry, with the checksums and sequences that consumers don't get.

Messages of formats 0 and 1 may be wrapped in a compressed one, and have their own checksums;
records of a batch share the batch's. A wrong checksum is reported and not raised: the records of a
damaged entry are read as far as possible.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from broker.kbroker.log.entries import LogEntry
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
"""Position of a message's key, which begins with its length, in formats 0 and 1."""
_CRC_COVERS_FROM = 16


class LoggedRecord(NamedTuple):
    """A record. Without its own checksum `crc` is None and `is_valid` True."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    sequence: int = NONE
    crc: int | None = None
    is_valid: bool = True


def add_to_sequence(sequence: int, delta: int) -> int:
    """Add `delta` to a sequence number, which wraps to 0 behind the largest; NONE stays NONE."""
    return NONE if sequence == NONE else (sequence + delta) % (MAX_SEQUENCE + 1)


def read_records(entry: LogEntry) -> list[LoggedRecord]:
    """Read all records of an entry. Raises CorruptRecord and CompressionUnavailable."""
    header = entry.header
    if isinstance(header, MessageHeader):
        try:
            return _read_messages(entry.data, header)
        except error as too_short:
            raise CorruptRecord(
                f"a message is too short for its fields: {too_short}"
            ) from too_short
    return _read_batch(entry.data, header)


def check_records(entry: LogEntry) -> None:
    """Check the records of an entry against its header. Raises as `read_records`."""
    header = entry.header

    # The last offset, by a walk that keeps no records where the format allows it.
    if isinstance(header, MessageHeader):
        last = read_records(entry)[-1].offset
    elif header.count > 0:
        body = decompress_records(entry.data, 0, header, MAX_ARRAY_BYTES)
        _, delta = walk(body, header.count, strict=False)
        last = header.base_offset + delta
    else:
        last = header.last_offset
        if header.count < 0 or header.size > HEADER_BYTES:
            raise CorruptRecord(f"a batch of {header.size} bytes claims {header.count} records")

    # It may be lower: compaction removes records and leaves the header's last offset.
    if last > header.last_offset:
        raise CorruptRecord(f"its last record has offset {last}, not {header.last_offset}")


def _read_batch(data: memoryview, header: BatchHeader) -> list[LoggedRecord]:
    if header.count == 0:
        return []
    if header.count < 0:
        raise CorruptRecord(f"a batch claims {header.count} records")

    rows: list[tuple[int, int, bytes | None, bytes | None, Headers]] = []
    walk(
        decompress_records(data, 0, header, MAX_ARRAY_BYTES),
        header.count,
        strict=False,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        rows=rows,
    )

    # With LogAppendTime the batch's time replaces each record's.
    appended_at = header.max_timestamp if header.timestamp_type else None
    return [
        LoggedRecord(
            offset,
            timestamp if appended_at is None else appended_at,
            key,
            value,
            headers,
            add_to_sequence(header.base_sequence, offset - header.base_offset),
        )
        for offset, timestamp, key, value, headers in rows
    ]


def _read_messages(data: memoryview, header: MessageHeader) -> list[LoggedRecord]:
    if header.codec is Codec.NONE:
        return [_read_message(data, 0, header)]

    # The value of a compressed message is a set of messages.
    compressed = _read_message(data, 0, header).value
    if compressed is None:
        raise CorruptRecord("a compressed message has a null value")

    # In format 0 the checksum in the LZ4 frame's header is wrong by convention (KIP-57).
    if header.codec is Codec.LZ4 and header.magic == 0:
        compressed = with_true_checksum(compressed)
    messages = list(_read_inner(decompress(header.codec, compressed, MAX_ARRAY_BYTES)))
    if not messages:
        raise CorruptRecord("a compressed message holds no messages")

    # In format 1 inner offsets count from 0, and the wrapper has the offset of the last.
    base_offset = 0
    if header.magic and header.offset:
        base_offset = header.offset - messages[-1].offset

    # With LogAppendTime the wrapper's time replaces each message's.
    appended_at = header.timestamp if header.timestamp_type == LOG_APPEND_TIME_TYPE else None
    return [
        message._replace(
            offset=base_offset + message.offset,
            timestamp=message.timestamp if appended_at is None else appended_at,
        )
        for message in messages
    ]


def _read_inner(data: bytes) -> Iterator[LoggedRecord]:
    position = 0
    while len(data) - position >= SMALLEST_ENTRY:
        size = size_at(data, position)

        # A partial message ends the set, as it does for consumers.
        if not SMALLEST_ENTRY <= size <= len(data) - position:
            return
        header = read_message_header(data, position)
        yield _read_message(memoryview(data), position, header)
        position += size


def _read_message(data: memoryview, start: int, header: MessageHeader) -> LoggedRecord:
    end = start + header.size
    key, at = _read_field(data, start + _KEY_AT[header.magic], end)
    value, _ = _read_field(data, at, end)
    is_valid = zlib.crc32(data[start + _CRC_COVERS_FROM : end]) == header.crc
    return LoggedRecord(
        header.offset, header.timestamp, key, value, crc=header.crc, is_valid=is_valid
    )


def _read_field(data: memoryview, at: int, end: int) -> tuple[bytes | None, int]:
    """Read the field at `at`, which begins with its length; return it and its end."""
    (length,) = _INT32.unpack_from(data, at)
    at += _INT32.size
    if length == -1:
        return None, at
    if not 0 <= length <= end - at:
        raise CorruptRecord(f"a field length of {length} with {end - at} bytes left")
    return bytes(data[at : at + length]), at + length
