"""Wire primitives that have no fixed width: unsigned varints (KIP-482).

Everything on the wire is big-endian. Fixed-width types are described by their `struct` code, so
that the compiler in `wire` can fuse neighbouring fields into one pack or unpack.
"""

from __future__ import annotations

MAX_UVARINT_BYTES = 5


class WireError(ValueError):
    """Bytes that are no message of the version they claim, or a value no field can carry."""


def read_uvarint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Return (value, next position) of an unsigned LEB128 number of at most 32 bits."""
    value = shift = 0
    for _ in range(MAX_UVARINT_BYTES):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
    raise WireError(f"unsigned varint longer than {MAX_UVARINT_BYTES} bytes at byte {pos}")


def uvarint(value: int) -> bytes:
    """Encode a non-negative number as unsigned LEB128."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
