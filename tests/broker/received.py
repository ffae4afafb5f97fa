"""Responses as a client receives them."""

from __future__ import annotations

from typing import Any

from broker.network.response_parts import read_part, split_at_holes
from protocol.api_key import ApiKey
from protocol.header import encode_response, read_response


def received(key: ApiKey, version: int, response: Any) -> Any:
    """Encode a response, and read it."""
    encoded, holes = encode_response(key, version, 77, response)
    whole = b"".join(map(read_part, split_at_holes(encoded, holes)))
    assert len(whole) == 4 + int.from_bytes(whole[:4])
    return read_response(key, version, whole[4:])[1]
