"""A transport that has closed by itself can be aborted."""

from __future__ import annotations

import asyncio
import socket

import pytest

from protocol.closed_transport import abort

LARGE = bytes(2**23)


@pytest.mark.fault("strangers-185")
async def test_a_transport_that_wrote_its_rest_after_its_close_can_be_aborted() -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, writer = await asyncio.open_connection(*server.getsockname())
        peer, _ = server.accept()
    with peer:
        writer.write(LARGE)
        writer.close()
        peer.setblocking(False)
        received = 0
        while piece := await loop.sock_recv(peer, 2**20):
            received += len(piece)
    await writer.wait_closed()
    assert received == len(LARGE)
    abort(writer.transport)


async def test_a_transport_that_is_open_is_aborted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        _, writer = await asyncio.open_connection(*server.getsockname())
    abort(writer.transport)
    assert writer.transport.is_closing()
