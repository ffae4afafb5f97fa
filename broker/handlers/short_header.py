"""Read the header of a request for a short way (`broker.network.dispatch.ShortWay`)."""

from __future__ import annotations

from struct import Struct

# Key, version, correlation id, length of the client id.
_HEADER = Struct(">hhih")
_NULL = -1


def read_short_header(frame: memoryview) -> tuple[int, int, int]:
    """Return version, correlation id, and where the body begins unless the API is flexible.

    Raises struct.error and UnicodeDecodeError; ValueError for a client id of no length.
    """
    _, version, correlation_id, length = _HEADER.unpack_from(frame)
    if length < _NULL:
        raise ValueError(f"a client id of {length} bytes")

    pos = _HEADER.size + max(length, 0)
    str(frame[_HEADER.size : pos], "utf-8")
    return version, correlation_id, pos
