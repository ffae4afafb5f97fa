"""Serve a broker's figures over HTTP: GET and HEAD of /metrics, and nothing else.

One request a connection. The text is made in slices, between which the loop serves others. Whatever
a client sends or does not read costs a bounded time and memory, and nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import attrs

from broker.metrics.exposition import CONTENT_TYPE
from protocol.closed_transport import abort

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 8 * 1024
MAX_CLIENTS = 8
"""Most clients at once. A further one takes the place of the one that is silent longest, and is
refused where none is. The text of 10,000 partitions takes 12 MB."""
PATIENCE_S = 10.0
"""Time for a client to send its request, and again to take the response."""
SLICE_S = 0.002
"""Longest time for the text in one turn of the event loop."""

_END = b"\r\n\r\n"


@attrs.define(eq=False)
class MetricsServer:
    """`format_figures()` yields the text in pieces; `spawn` runs a task of the broker."""

    format_figures: Callable[[], Iterator[str]]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    _clients: set[asyncio.StreamWriter] = attrs.field(factory=set)
    _silent: dict[asyncio.StreamWriter, None] = attrs.field(factory=dict)
    """Those of them whose turn it is, longest first."""
    _server: asyncio.Server | None = None

    async def start(self, bound: socket.socket) -> None:
        """Serve on a bound socket."""
        self._server = await asyncio.start_server(
            self._accept, sock=bound, limit=MAX_REQUEST_BYTES, backlog=MAX_CLIENTS
        )

    def close(self) -> None:
        """Stop serving. Requests in progress end with the broker's tasks."""
        if self._server is not None:
            self._server.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MAX_CLIENTS:
            # A stranger could keep all scrapes out with silence (fault security-11, was: writer).
            silent = next(iter(self._silent), writer)
            abort(silent.transport)
            self._forget(silent)
            if silent is writer:
                return
        self._clients.add(writer)
        self._silent[writer] = None
        self.spawn(self._serve(reader, writer))

    def _forget(self, writer: asyncio.StreamWriter) -> None:
        self._clients.discard(writer)
        self._silent.pop(writer, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # A client that is slow, gone, or sends what is no request.
            with contextlib.suppress(TimeoutError, OSError, EOFError):
                async with asyncio.timeout(PATIENCE_S):
                    request = await _read_request(reader)
                self._silent.pop(writer, None)
                response = await self._respond(request)

                # It may have made room for another one.
                if writer not in self._clients:
                    return
                self._silent[writer] = None
                async with asyncio.timeout(PATIENCE_S):
                    writer.write(response)
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            self._forget(writer)
            # Nothing is left of it, though it may not have taken all.
            abort(writer.transport)

    async def _respond(self, request: bytes) -> bytes:
        method, target = _parse(request)
        if method is None or target is None:
            return _format_response("400 Bad Request", b"this is not HTTP\n")
        if target.partition("?")[0] != "/metrics":
            return _format_response("404 Not Found", b"only /metrics is here\n")
        if method not in ("GET", "HEAD"):
            return _format_response("405 Method Not Allowed", b"GET it\n", "Allow: GET, HEAD\r\n")

        body = await self._make_text()
        return _format_response("200 OK", body, with_body=method == "GET")

    async def _make_text(self) -> bytes:
        """Make the text, a slice in each turn of the loop."""
        loop = asyncio.get_running_loop()
        pieces: list[bytes] = []
        lines: list[str] = []
        began = loop.time()
        for line in self.format_figures():
            lines.append(line)
            if loop.time() - began > SLICE_S:
                pieces.append("".join(lines).encode())
                lines.clear()
                await asyncio.sleep(0)
                began = loop.time()
        pieces.append("".join(lines).encode())
        return b"".join(pieces)


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    """Read up to the end of the headers; what is too long is no request."""
    try:
        return await reader.readuntil(_END)
    except asyncio.LimitOverrunError:
        return b""


def _parse(request: bytes) -> tuple[str | None, str | None]:
    """Return the method and the target of a request, None for what is none."""
    words = request.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None, None
    return words[0], words[1]


def _format_response(status: str, body: bytes, more: str = "", *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n"
        f"{more}Connection: close\r\n\r\n"
    ).encode()
    return head + body if with_body else head
