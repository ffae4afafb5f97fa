"""Stamp the leader's fields into a batch, without copying the batch's body.

Base offset and leader epoch are outside the checksum and replace the first sixteen bytes. A new
timestamp (for LogAppendTime, or for a wrong latest one in a producer's header) lies inside it, so
the rest of the header is written again then, with a new checksum. The base timestamp stays, for the
records' timestamps are relative to it (KAFKA-5353).
"""

from __future__ import annotations

import struct

from crc32c import crc32c

from core_log.storage import BytesLike
from protocol.records.batch_header import CRC_COVERS_FROM, HEADER_BYTES, BatchHeader

_MAGIC_AT = 16
# Base offset, length, leader epoch: all that is before the magic.
_PREFIX = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
# Places in the rest of the header, which begins with the magic.
_CRC_AT = 17 - _MAGIC_AT
_ATTRIBUTES_AT = CRC_COVERS_FROM - _MAGIC_AT
_MAX_TIMESTAMP_AT = 35 - _MAGIC_AT


def stamp(
    batch: BytesLike,
    header: BatchHeader,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    max_timestamp: int,
) -> list[BytesLike]:
    """Return the batch with these fields in its header, as buffers to write in one call."""
    view = memoryview(batch)
    prefix = _PREFIX.pack(base_offset, header.length, leader_epoch)
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return [prefix, view[_MAGIC_AT : header.size]]

    # Write the fields inside the checksum, and compute that again.
    rest, body = bytearray(view[_MAGIC_AT:HEADER_BYTES]), view[HEADER_BYTES : header.size]
    _ATTRIBUTES.pack_into(rest, _ATTRIBUTES_AT, attributes)
    _MAX_TIMESTAMP.pack_into(rest, _MAX_TIMESTAMP_AT, max_timestamp)
    checksum = crc32c(body, crc32c(bytes(rest[_ATTRIBUTES_AT:])))
    _CRC.pack_into(rest, _CRC_AT, checksum)
    return [prefix, rest, body]
