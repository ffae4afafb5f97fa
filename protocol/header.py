"""Request and response headers, and whole framed messages.

Request header v1: key, version, correlation id, client id; v2 adds tagged fields. Response header
v0: correlation id; v1 adds tagged fields. The protocol has two exceptions: ControlledShutdown v0
has no client id, and all versions of ApiVersions have response header v0 (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from protocol.api import find_api
from protocol.api_key import ApiKey
from protocol.bounds import MAX_HEADER_TAGS, MAX_REQUEST_ELEMENTS
from protocol.encoding import Buffer, Encoded, Hole, decode, decode_bounded, encode_into
from protocol.primitives import WireError, read_uvarint
from protocol.text import REPLACE
from protocol.wire import is_flexible

# Key, version, correlation id; in `_CLIENT` also the length of the client id.
_FIXED = struct.Struct(">hhi")
_CLIENT = struct.Struct(">hhih")
_INT32 = struct.Struct(">i")
WITHOUT_CLIENT_ID = (ApiKey.CONTROLLED_SHUTDOWN, 0)


class RequestHeader(NamedTuple):
    """The beginning of every request. `api_key` may be a number that ApiKey does not have."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read key, version, correlation id and client id; return them and the position after them.

    The tagged fields of header v2 are not read: only the class of the message says whether there
    are any, so `read_request` skips them. Raises WireError.
    """
    try:
        key, version, correlation_id = _FIXED.unpack_from(frame, 0)
        if (key, version) == WITHOUT_CLIENT_ID:
            return RequestHeader(key, version, correlation_id, None), _FIXED.size

        # The client id keeps its length of two bytes in flexible versions too.
        key, version, correlation_id, length = _CLIENT.unpack_from(frame, 0)
        end = _CLIENT.size + max(length, 0)
        if length < -1 or end > len(frame):
            raise WireError(f"client id of {length} bytes in a frame of {len(frame)}")
        # As in messages (fault strangers-149, was: str(frame[_CLIENT.size : end], "utf-8")).
        text = str(frame[_CLIENT.size : end], "utf-8", REPLACE)
        client_id = None if length < 0 else text
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"request header: {error}") from error
    return RequestHeader(key, version, correlation_id, client_id), end


def read_correlation_id(frame: Buffer) -> tuple[int, int, int]:
    """Read (key, version, correlation id).

    The rest of an ApiVersions request of an unknown version cannot be read. Raises WireError.
    """
    try:
        key, version, correlation_id = _FIXED.unpack_from(frame, 0)
    except struct.error as error:
        raise WireError(f"request header: {error}") from error
    return key, version, correlation_id


def read_request(
    header: RequestHeader,
    frame: Buffer,
    pos: int,
    max_elements: int | None = MAX_REQUEST_ELEMENTS,
    note_trailing: Callable[[RequestHeader, int], None] | None = None,
) -> Any:
    """Read the body of a request whose header ends at `pos`. Raises WireError.

    `max_elements` bounds its arrays; None does not, for those of brokers. Bytes behind the body are
    not looked at; `note_trailing` is called with their number.
    """
    kind = find_api(header.api_key).request
    if is_flexible(kind, header.api_version):
        pos = _skip_tags(frame, pos)
    if max_elements is None:
        request, end = decode(kind, header.api_version, frame, pos)
    else:
        request, end = decode_bounded(kind, header.api_version, frame, pos, max_elements)

    # Some clients write more than they should, which no broker has ever refused: librdkafka 2.0 in
    # ListGroups, 2.16 in Metadata (its issue 5049).
    if end < len(frame) and note_trailing is not None:
        note_trailing(header, len(frame) - end)
    return request


def read_replica_id(header: RequestHeader, frame: Buffer, pos: int) -> int:
    """Read which broker sends a Fetch, alone of its body; -1: it is a consumer's.

    `pos` is where the header ends. Raises WireError.
    """
    if is_flexible(find_api(header.api_key).request, header.api_version):
        pos = _skip_tags(frame, pos)
    try:
        (replica_id,) = _INT32.unpack_from(frame, pos)
    except struct.error as error:
        raise WireError(f"replica id: {error}") from error
    return int(replica_id)


def encode_request(
    api_key: ApiKey, version: int, correlation_id: int, client_id: str | None, request: Any
) -> bytes:
    """Encode a whole request with its size in front."""
    # The first four bytes are for the size.
    out = bytearray(4)
    # Its length would be read as the broker's id (fault strangers-137).
    if (api_key, version) == WITHOUT_CLIENT_ID:
        out += _FIXED.pack(api_key, version, correlation_id)
    else:
        name = (client_id or "").encode()
        length = -1 if client_id is None else len(name)
        out += _CLIENT.pack(api_key, version, correlation_id, length) + name
    if is_flexible(type(request), version):
        out.append(0)  # no tagged fields

    holes: list[Hole] = []
    encode_into(out, request, version, holes)
    assert not holes, "a request carries its records in memory"
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return bytes(out)


def encode_response(
    api_key: int, version: int, correlation_id: int, response: Any
) -> tuple[bytearray, list[Hole]]:
    """Encode a whole response with its size in front; return it and the holes that are left."""
    # The first four bytes are for the size.
    out = bytearray(4)
    out += correlation_id.to_bytes(4, "big", signed=True)
    kind = response.kind if isinstance(response, Encoded) else type(response)

    # A client that asks for the versions cannot know yet which headers the broker uses.
    if api_key != ApiKey.API_VERSIONS and is_flexible(kind, version):
        out.append(0)  # no tagged fields

    holes: list[Hole] = []
    if isinstance(response, Encoded):
        out += response.body
    else:
        encode_into(out, response, version, holes)

    # Ranges of files and chunks are not in `out`, but count as part of the response.
    size = len(out) - 4
    for _, body in holes:
        size += body.size
    out[:4] = size.to_bytes(4, "big")
    return out, holes


def read_response(api_key: ApiKey, version: int, frame: Buffer) -> tuple[int, Any]:
    """Read (correlation id, response) from a frame without its size. Raises WireError."""
    if len(frame) < 4:
        raise WireError(f"a response of {len(frame)} bytes has no correlation id")

    kind = find_api(api_key).response
    pos = 4
    if api_key != ApiKey.API_VERSIONS and is_flexible(kind, version):
        pos = _skip_tags(frame, pos)
    response, _ = decode(kind, version, frame, pos)
    return int.from_bytes(frame[:4], "big", signed=True), response


def _skip_tags(frame: Buffer, pos: int) -> int:
    try:
        count, pos = read_uvarint(frame, pos)
        # Each takes time, and is of no use (fault security-3).
        if count > MAX_HEADER_TAGS:
            raise WireError(f"the header has {count} tagged fields")
        for _ in range(count):
            _, pos = read_uvarint(frame, pos)
            size, pos = read_uvarint(frame, pos)
            # A size beyond the end of the frame fails where the body is read.
            pos += size
    except IndexError as error:
        raise WireError("the header's tagged fields are cut") from error
    return pos
