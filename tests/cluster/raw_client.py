"""A client that says whatever it is told to, well-formed or not."""

import socket
import struct
from typing import Any

import attrs

from protocol.api import key_of
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from tests.stage.cluster import DevCluster

ANSWER_S = 20.0


@attrs.define(eq=False)
class RawClient:
    """A socket that says whatever it is told to."""

    cluster: DevCluster
    connection: socket.socket = attrs.field(init=False)

    def __enter__(self) -> "RawClient":
        host, _, port = self.cluster.address("bootstrap").rpartition(":")
        self.connection = socket.create_connection((host, int(port)), timeout=ANSWER_S)
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    @property
    def name(self) -> str:
        """As the broker calls it."""
        host, port = self.connection.getsockname()
        return f"{host}:{port}"

    def ask(self, request: Any, version: int) -> Any:
        """Send a request and read its answer."""
        key = key_of(request)
        self.connection.sendall(encode_request(key, version, 7, "raw", request))
        return self.answer(key, version)

    def answer(self, key: ApiKey, version: int) -> Any:
        """Read an answer of correlation id 7."""
        size = int.from_bytes(self._read(4), "big")
        correlation_id, response = read_response(key, version, self._read(size))
        assert correlation_id == 7
        return response

    def is_closed(self) -> bool:
        """Wait for the end of the stream; False when an answer comes instead."""
        try:
            return self.connection.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            part = self.connection.recv(size - len(read))
            assert part, f"closed after {len(read)} of {size} bytes"
            read += part
        return read


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def header(key: int, version: int) -> bytes:
    """Correlation id 7, no client id."""
    return struct.pack(">hhih", key, version, 7, -1)
