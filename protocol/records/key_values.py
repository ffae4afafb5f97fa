"""Read only keys and values from many small batches: all that loading a table needs.

A plain batch is uncompressed, belongs to no transaction, and its records have keys and no headers.
Plain batches are read in one pass over their bytes. Reading stops at the first batch that is not
plain, or that contradicts itself; the caller reads that one with batch.py, which names the error.
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
from protocol.version import COMPILED

_HEADER: Final = Struct(">qi4xbIhi30xi")
"""Base offset, length, magic, CRC, attributes, last offset delta, count."""
_NOT_PLAIN: Final = CODEC_MASK | TRANSACTIONAL | CONTROL


class KeyValues(NamedTuple):
    """Columns with a row for each record; reading continues at `end` and `next_offset`."""

    end: int
    next_offset: int
    keys: list[bytes]
    values: list[bytes | None]


def read_key_values(buffer: bytes, pos: int, most: int) -> KeyValues | None:
    """Read whole plain batches from `pos` on, until there are `most` records or more.

    Returns None if the batch at `pos` is not whole and plain.
    """
    keys: list[bytes] = []
    values: list[bytes | None] = []
    view = memoryview(buffer)
    last_header_at = len(buffer) - HEADER_BYTES
    begin = pos
    next_offset = -1

    while pos <= last_header_at and len(keys) < most:
        base_offset, length, magic, crc, attributes, last_delta, count = _HEADER.unpack_from(
            buffer, pos
        )
        end = pos + LOG_OVERHEAD + length
        first = len(keys)

        # The CRC last: it is the only check that reads the whole batch.
        if (
            magic != MAGIC
            or attributes & _NOT_PLAIN
            or length < HEADER_BYTES - LOG_OVERHEAD
            or end > len(buffer)
            or crc32c(view[pos + CRC_COVERS_FROM : end]) != crc
        ):
            break
        if not _read_records(buffer, pos + HEADER_BYTES, end, count, keys, values):
            # Some of its records may have been added.
            del keys[first:]
            del values[first:]
            break

        # The end according to the header: compaction may have removed the last records.
        pos = end
        next_offset = base_offset + last_delta + 1

    assert len(keys) == len(values)
    return KeyValues(pos, next_offset, keys, values) if pos > begin else None


def _read_records(
    buffer: bytes, pos: int, end: int, count: int, keys: list[bytes], values: list[bytes | None]
) -> bool:
    """Add the `count` records between `pos` and `end`; return False if they are not plain.

    Some records may have been added when it returns False.
    """
    # Records of equal shape at the beginning are read together, if that takes less time.
    if not COMPILED and count >= SHORTEST_RUN:
        run = find_run(buffer, pos, count)
        if run is not None and run.end <= end and run.key_length >= 0:
            size = run.key_length
            keys += [buffer[at : at + size] for at in range(run.key_at, run.end, run.stride)]
            size = run.value_length
            if size >= 0:
                values += [
                    buffer[at : at + size] for at in range(run.value_at, run.end, run.stride)
                ]
            else:
                values += [None] * run.records
            pos = run.end
            count -= run.records

    # All others are read one by one.
    try:
        for _ in range(count):
            pos = _read_record(buffer, pos, keys, values)
    except (IndexError, _NotPlain):
        return False
    return pos == end and count >= 0


class _NotPlain(Exception):
    """The record is not plain."""


def _read_record(buffer: bytes, pos: int, keys: list[bytes], values: list[bytes | None]) -> int:
    """Add the record at `pos`; return its end, on which its length and its fields agree.

    Numbers stay folded (varint.py), so null is 1. A record with a length of more than two bytes is
    not plain. Raises _NotPlain, and IndexError beyond the end of `buffer`.
    """
    # The length of the record.
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

    # The key.
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

    # The value.
    if (value_size := buffer[pos]) < 128:
        pos += 1
    elif (high := buffer[pos + 1]) < 128:
        value_size += (high << 7) - 128
        pos += 2
    else:
        raise _NotPlain
    value_at = pos
    pos += value_size >> 1

    # Negative lengths (but for a null value) and headers are not plain.
    if size & 1 or (value_size & 1 and value_size != 1) or buffer[pos] or pos + 1 != end:
        raise _NotPlain
    keys.append(key)
    values.append(None if value_size == 1 else buffer[value_at:pos])
    return end
