"""Read the header of a request for a short way (`broker.network.dispatch.ShortWay`).

The parts of flexible versions (KIP-482) are here too. Tagged fields are not usual: the general way
reads them.
"""

from __future__ import annotations

from struct import Struct

from protocol.primitives import read_uvarint

# Key, version, correlation id, length of the client id.
HEADER = Struct(">hhih")
_NULL = -1


def read_short_header(frame: memoryview) -> tuple[int, int, int]:
    """Return version, correlation id, and where the body begins.

    In a flexible version the header's tagged fields come before the body: see `skip_no_tags`.

    Raises struct.error and UnicodeDecodeError; ValueError for a client id of no length.
    """
    _, version, correlation_id, length = HEADER.unpack_from(frame)
    if length < _NULL:
        raise ValueError(f"a client id of {length} bytes")

    pos = HEADER.size + max(length, 0)
    str(frame[HEADER.size : pos], "utf-8")
    return version, correlation_id, pos


def read_compact_text(frame: memoryview, pos: int) -> tuple[str, int]:
    """Return the text of a flexible version at `pos`, and the position after it.

    Raises IndexError and UnicodeDecodeError; ValueError for null.
    """
    # Nearly all lengths take one byte. They are stored plus one, so that 0 is null.
    length = frame[pos]
    pos += 1
    if length >= 0x80:
        length, pos = read_uvarint(frame, pos - 1)
    if not length:
        raise ValueError("null")

    end = pos + length - 1
    return str(frame[pos:end], "utf-8"), end


def skip_no_tags(frame: memoryview, pos: int) -> int:
    """Return the position after the number of tagged fields. Raises ValueError unless it is 0."""
    if frame[pos]:
        raise ValueError("tagged fields")
    return pos + 1
