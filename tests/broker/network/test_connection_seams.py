"""The seams for authentication and quotas: sessions, and connections that are throttled."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import attrs
import pytest

from broker.network.dispatch import Dispatched, Dispatcher, Handler
from broker.network.request_context import Origin, RequestContext
from broker.network.session import ANONYMOUS, Principal, SessionRefused
from protocol.api_key import ApiKey
from tests.broker.served import ask, echo, echoed, serving
from tests.stage.waiting import until


@attrs.define(eq=False)
class PasswordSession:
    """A session whose first frame is a name and a password, without a header."""

    takes_frames: bool = True
    principal: Principal = ANONYMOUS
    max_frame_bytes: int | None = 100

    def receive(self, frame: memoryview) -> bytes:
        name, _, password = bytes(frame).decode().partition(":")
        if password != "secret":
            raise SessionRefused(f"{name} gave the wrong password", framed(b"no"), 1)
        self.takes_frames = False
        self.max_frame_bytes = None
        self.principal = Principal("User", name)
        return framed(b"welcome")


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


async def test_frames_pass_the_session_until_it_is_authenticated() -> None:
    principals: list[str] = []

    def handler(request: Any, context: RequestContext) -> Any:
        principals.append(str(context.principal))
        return echoed(request.key)

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        server.listener.open_session = lambda listener: PasswordSession()
        client = await server.client()
        await client.send(framed(b"alice:secret"), ask(1, "k"))
        assert await client.receive() == b"welcome"
        assert await client.answer() == (1, "k")
        assert principals == ["User:alice"]


async def test_client_that_does_not_authenticate_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    handlers: dict[ApiKey, Handler] = {ApiKey.FIND_COORDINATOR: echo}
    async with serving(handlers) as server:
        server.listener.open_session = lambda listener: PasswordSession()
        client = await server.client()
        await client.send(framed(b"mallory:guess"))
        assert await client.receive() == b"no"
        assert await client.is_closed()
        assert "mallory gave the wrong password" in caplog.text


async def test_who_has_closed_its_side_is_told_that_its_login_is_refused() -> None:
    """The refusal comes late, and the end of the client's bytes before it."""
    async with serving({ApiKey.FIND_COORDINATOR: echo}) as server:
        server.listener.open_session = lambda listener: PasswordSession()
        client = await server.client()
        await client.send(framed(b"mallory:guess"))
        client.sock.shutdown(socket.SHUT_WR)
        assert await client.receive() == b"no"
        assert await client.is_closed()
        await until(lambda: not server.listener.connections, "the connection is forgotten")


class ThrottlingDispatcher(Dispatcher):
    """A dispatcher that throttles the client after a request for "much"."""

    def dispatch(self, frame: memoryview, origin: Origin) -> Dispatched:
        dispatched = super().dispatch(frame, origin)
        outcome: Any = dispatched.outcome
        return dispatched._replace(throttle_ms=60_000 if outcome.host == "much" else 0)


async def test_response_of_a_throttled_client_goes_at_once_and_its_connection_is_not_read() -> None:
    async with serving({ApiKey.FIND_COORDINATOR: echo}) as server:
        client, other = await server.client(), await server.client()
        await client.echo()
        (connection,) = [c for c in server.listener.connections if c.name == client.name]
        dispatcher = connection.dispatcher
        connection.dispatcher = ThrottlingDispatcher(
            dispatcher.handlers, dispatcher.now_ms, dispatcher.monotonic_ms
        )
        assert await client.echo(1, "much") == (1, "much")
        await client.send(ask(2, "more"))
        await other.echo()
        assert not connection.is_in_frame
        assert connection._is_throttled
        connection._end_throttle()
        assert await client.answer() == (2, "more")


async def test_throttle_ends_with_its_time() -> None:
    async with serving({ApiKey.FIND_COORDINATOR: echo}) as server:
        client = await server.client()
        await client.echo()
        (connection,) = server.listener.connections
        connection._throttle(1)
        await client.send(ask(1, "k"))
        async with asyncio.timeout(10):
            assert await client.answer() == (1, "k")


async def test_throttle_ends_with_the_connection() -> None:
    """It may be long, and would keep what the connection has."""
    async with serving({ApiKey.FIND_COORDINATOR: echo}) as server:
        client = await server.client()
        await client.echo()
        (connection,) = server.listener.connections
        connection._throttle(3_600_000)
        timer = connection._throttle_timer
        assert timer is not None
        connection.close()
        assert await client.is_closed()
        assert timer.cancelled()


async def test_end_that_comes_in_a_throttle_waits_for_the_end_of_it() -> None:
    """Over TLS it comes with the bytes before it."""
    async with serving({ApiKey.FIND_COORDINATOR: echo}) as server:
        client = await server.client()
        await client.echo()
        (connection,) = server.listener.connections
        connection._throttle(3_600_000)
        assert connection.eof_received()
        connection._end_throttle()
        assert await client.is_closed()
