"""Read the headers of many batches by columns. Needs numpy, an extra.

Only the length of a batch tells where the next one begins, so that chain is followed. Then the
headers are gathered into one array, a row for each batch, with the fields of BatchHeader.
"""

from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocol.records.batch_header import (
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
)
from protocol.records.corrupt_record import CorruptRecord
from protocol.records.entry import BYTES_TO_MAGIC, MAGIC_AT, Buffer
from protocol.records.record_columns import Ints

Headers = NDArray[Any]
"""Rows with the fields of BatchHeader."""

_LENGTH_AT = 8
_LENGTH = Struct(">i")

# The formats of struct are those of numpy.
_ROW = np.dtype(
    [
        (name, f">{code}")
        for name, code in zip(BatchHeader._fields, HEADER.format.removeprefix(">"), strict=True)
    ]
)


def find_batches(buf: Buffer) -> list[int] | None:
    """Return where the batches begin that `buf` has whole; the last one may be cut off.

    None if an entry is of another format. Raises CorruptRecord for a length without room for a
    header.
    """
    positions: list[int] = []
    pos = 0
    end = len(buf)
    while end - pos >= HEADER_BYTES:
        if buf[pos + MAGIC_AT] != MAGIC:
            return None
        (length,) = _LENGTH.unpack_from(buf, pos + _LENGTH_AT)
        size = length + LOG_OVERHEAD
        if size < HEADER_BYTES:
            raise CorruptRecord(f"batch length {length} is too short for its own header")
        if size > end - pos:
            return positions
        positions.append(pos)
        pos += size

    # The rest is too short for a batch, and may be a message.
    is_message = end - pos >= BYTES_TO_MAGIC and buf[pos + MAGIC_AT] != MAGIC
    return None if is_message else positions


def read_headers(buf: Buffer, positions: Ints) -> Headers:
    """Read the headers at `positions`."""
    octets = np.frombuffer(buf, np.uint8)
    rows = octets[positions[:, np.newaxis] + np.arange(HEADER_BYTES)]
    headers: Headers = rows.view(_ROW)[:, 0]
    return headers
