"""Wire primitives that have no fixed width: unsigned varints (KIP-482).

Numbers of fixed width are big-endian. `wire` describes their types by `struct` codes, so that
`encoding` can read or write neighbouring fields in one call.
"""

from __future__ import annotations

MAX_UVARINT_BYTES = 5


class WireError(ValueError):
    """Bytes are not a message of their version, or a value does not fit its field."""


def read_uvarint(buf: bytes | memoryview, pos: int) -> tuple[int, int]:
    """Read an unsigned LEB128 number of up to 5 bytes; return it and the next position.

    Raises WireError for a longer one, IndexError if the bytes end inside it.
    """
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
    # Nearly all lengths and counts take one byte.
    if value < 0x80:
        return bytes((value,))

    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
