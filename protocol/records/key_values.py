"""Keys and values of many small batches, and nothing else of them: what loading a table asks.

A batch that is plain (uncompressed, of no transaction, its records with keys and without headers)
is read in one pass over its bytes. Whatever else there is, a lie included, is left where it stands:
who asked takes a closer look there (batch.py), and hears what it is.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol.records.batch_header import (
    CODEC_MASK,
    CONTROL,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL,
)
from protocol.records.record_run import SHORTEST_RUN, find_run

_HEADER: Final = Struct(">qi4xbIhi30xi")
"""Base offset, length, magic, CRC, attributes, last offset delta, count."""
_NOT_PLAIN: Final = CODEC_MASK | TRANSACTIONAL | CONTROL


class KeyValues(NamedTuple):
    """Columns, a row for each record; `end` and `next_offset` are where reading goes on."""

    end: int
    next_offset: int
    keys: list[bytes]
    values: list[bytes | None]


def read_key_values(buffer: bytes, pos: int, most: int) -> KeyValues | None:
    """Read plain whole batches from `pos` on, until there are `most` records or more.

    None when the batch at `pos` is no such one.
    """
    keys: list[bytes] = []
    values: list[bytes | None] = []
    view, last, begin, next_offset = memoryview(buffer), len(buffer) - HEADER_BYTES, pos, -1
    while pos <= last and len(keys) < most:
        base_offset, length, magic, crc, attributes, last_delta, count = _HEADER.unpack_from(
            buffer, pos
        )
        end, first = pos + LOG_OVERHEAD + length, len(keys)
        if (
            magic != MAGIC
            or attributes & _NOT_PLAIN
            or length < HEADER_BYTES - LOG_OVERHEAD
            or end > len(buffer)
            or crc32c(view[pos + CRC_COVERS_FROM : end]) != crc
        ):
            break
        if not _read_records(buffer, pos + HEADER_BYTES, end, count, keys, values):
            del keys[first:], values[first:]
            break
        pos, next_offset = end, base_offset + last_delta + 1
    return KeyValues(pos, next_offset, keys, values) if pos > begin else None


def _read_records(
    buffer: bytes, pos: int, end: int, count: int, keys: list[bytes], values: list[bytes | None]
) -> bool:
    """Whether the records between `pos` and `end` are `count` plain ones, which then are taken."""
    if count >= SHORTEST_RUN:
        run = find_run(buffer, pos, count)
        if run is not None and run.end <= end and run.key_length >= 0:
            size, at = run.key_length, range(run.key_at, run.end, run.stride)
            keys += [buffer[key : key + size] for key in at]
            size, at = run.value_length, range(run.value_at, run.end, run.stride)
            values += (
                [buffer[value : value + size] for value in at]
                if size >= 0
                else [None] * (run.records)
            )
            pos, count = run.end, count - run.records
    try:
        for _ in range(count):
            pos = _read_record(buffer, pos, keys, values)
    except (IndexError, _NotPlain):
        return False
    return pos == end and count >= 0


class _NotPlain(Exception):
    """The record takes a closer look."""


def _read_record(buffer: bytes, pos: int, keys: list[bytes], values: list[bytes | None]) -> int:
    """Take the record at `pos`; where it ends, which its length and its fields agree on.

    Numbers stay folded (varint.py): null is 1. Lengths of more than two bytes are not plain.
    """
    if (length := buffer[pos]) < 128:
        pos += 1
    elif (high := buffer[pos + 1]) < 128:
        length += (high << 7) - 128
        pos += 2
    else:
        raise _NotPlain
    end = pos + (length >> 1)
    pos += 1  # the attributes, which nothing uses
    while buffer[pos] > 127:  # the timestamp delta
        pos += 1
    pos += 1
    while buffer[pos] > 127:  # the offset delta
        pos += 1
    pos += 1
    if (size := buffer[pos]) < 128:
        pos += 1
    elif (high := buffer[pos + 1]) < 128:
        size += (high << 7) - 128
        pos += 2
    else:
        raise _NotPlain
    key_at = pos
    pos += size >> 1
    key = buffer[key_at:pos]
    if (value_size := buffer[pos]) < 128:
        pos += 1
    elif (high := buffer[pos + 1]) < 128:
        value_size += (high << 7) - 128
        pos += 2
    else:
        raise _NotPlain
    value_at = pos
    pos += value_size >> 1
    if size & 1 or (value_size & 1 and value_size != 1) or buffer[pos] or pos + 1 != end:
        raise _NotPlain
    keys.append(key)
    values.append(None if value_size == 1 else buffer[value_at:pos])
    return end
