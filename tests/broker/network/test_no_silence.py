"""Thousands of small requests, each sent by itself: no connection falls silent, whatever is full.

The buffers of one side or both are small and fixed, or the kernel's. A fixed receive buffer that is
full makes the kernel drop acknowledgements of what we send: then one direction must go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.network.connection import AHEAD_BYTES
from broker.network.dispatch import Handler
from broker.network.listener_tls import ListenerTls
from broker.network.purgatory import Wait
from broker.network.queued_bytes import READ_BYTES
from broker.network.response_parts import SENDFILE_MIN_BYTES
from clients.transport.connection import Connection
from core_log.directory import LogDirectory
from protocol.api_key import ApiKey
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.tls.principal_rules import parse_rules
from tests.broker.network.file_responses import fetch, files
from tests.broker.served import ECHO, Server, ask, echo, echoed, serving
from tests.protocol.tls.test_context import client as client_context
from tests.protocol.tls.test_context import server as server_context
from tests.stage.waiting import until

REQUESTS = 20_000
DEADLINE_S = 60.0
FIXED_BYTES = 20_000
FILE_BYTES = SENDFILE_MIN_BYTES + 1
FIXED = {
    "socket_send_buffer_bytes": str(FIXED_BYTES),
    "socket_receive_buffer_bytes": str(FIXED_BYTES),
}
RECEIVE_FIXED = {"socket_receive_buffer_bytes": str(FIXED_BYTES)}
BUFFERS = pytest.mark.parametrize(
    "buffers", [{}, FIXED, RECEIVE_FIXED], ids=["kernel", "fixed", "fixed to receive"]
)
LAYERS = pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])


@attrs.define(eq=False)
class Pipe:
    """A client that sends frames one by one, and counts the bytes of responses it has read."""

    sock: socket.socket
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None
    received_bytes: int = 0

    async def send(self, frame: bytes) -> None:
        if self.writer is None:
            await asyncio.get_running_loop().sock_sendall(self.sock, frame)
        else:
            self.writer.write(frame)
            await self.writer.drain()

    async def send_each(self, frames: int, frame: Callable[[int], bytes]) -> None:
        for number in range(frames):
            await self.send(frame(number))

    async def read(self) -> bytes:
        if self.reader is None:
            some = await asyncio.get_running_loop().sock_recv(self.sock, READ_BYTES)
        else:
            some = await self.reader.read(READ_BYTES)
        assert some, "the broker has closed"
        self.received_bytes += len(some)
        return some

    async def read_up_to(self, total_bytes: int) -> None:
        while self.received_bytes < total_bytes:
            await self.read()


@contextlib.asynccontextmanager
async def piped(server: Server, is_tls: bool, fixed_bytes: int = 0) -> AsyncIterator[Pipe]:
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if fixed_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, fixed_bytes)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, fixed_bytes)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
    pipe = Pipe(sock)
    if is_tls:
        pipe.reader, pipe.writer = await asyncio.open_connection(
            sock=sock, ssl=client_context(), server_hostname="localhost"
        )
    try:
        yield pipe
    finally:
        if pipe.writer is not None:
            pipe.writer.transport.abort()
        sock.close()


def tls(is_tls: bool) -> dict[str, ListenerTls]:
    if not is_tls:
        return {}
    return {"PLAINTEXT": ListenerTls(server_context(), parse_rules("DEFAULT"), names_users=True)}


def answer_bytes(key: str) -> int:
    """Of a response that echoes a key."""
    return 4 + 4 + 2 + 4 + 2 + len(key) + 4


async def look_around(server: Server) -> None:
    """Do what the broker does each second, more often."""
    while True:
        server.listener.rotate_readers()
        await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def looked_around(server: Server) -> AsyncIterator[None]:
    looking = asyncio.ensure_future(look_around(server))
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


async def exchange(pipe: Pipe, frames: int, frame: Callable[[int], bytes], expected: int) -> None:
    """Send frames and read all the time, until so many bytes have come."""
    async with asyncio.timeout(DEADLINE_S):
        sending = asyncio.ensure_future(pipe.send_each(frames, frame))
        await pipe.read_up_to(expected)
        await sending
    assert pipe.received_bytes == expected


@pytest.mark.fault("outside-O18")
@BUFFERS
@LAYERS
@pytest.mark.parametrize("fixed_bytes", [0, FIXED_BYTES], ids=["", "client fixed"])
async def test_small_requests_are_all_answered(
    is_tls: bool, buffers: dict[str, str], fixed_bytes: int
) -> None:
    async with (
        serving(ECHO, tls=tls(is_tls), **buffers) as server,
        piped(server, is_tls, fixed_bytes) as pipe,
    ):
        await exchange(
            pipe, REQUESTS, lambda n: ask(n, "k" * 20), REQUESTS * answer_bytes("k" * 20)
        )


@pytest.mark.fault("outside-O18")
@BUFFERS
@LAYERS
async def test_small_requests_with_large_answers_are_all_answered(
    is_tls: bool, buffers: dict[str, str]
) -> None:
    large = "x" * 30_000
    handlers: dict[ApiKey, Handler] = {ApiKey.FIND_COORDINATOR: lambda request, _: echoed(large)}
    requests = 4000
    async with (
        serving(handlers, tls=tls(is_tls), **buffers) as server,
        piped(server, is_tls) as pipe,
    ):
        await exchange(pipe, requests, ask, requests * answer_bytes(large))


@pytest.mark.fault("outside-O18")
@BUFFERS
@LAYERS
async def test_files_are_sent_while_requests_fill_the_receive_buffer(
    is_tls: bool, buffers: dict[str, str], tmp_path: Path
) -> None:
    file = LogDirectory(tmp_path).open_segment("file")
    file.append([bytes(FILE_BYTES)])
    handlers = files(file.range(0, FILE_BYTES))
    async with serving(handlers, tls=tls(is_tls)) as server, piped(server, is_tls) as pipe:
        await pipe.send(fetch(0))
        head = await pipe.read()
        answer = 4 + int.from_bytes(head[:4], "big")
        await pipe.read_up_to(answer)

    requests = 2000
    async with (
        serving(handlers, tls=tls(is_tls), **buffers) as server,
        piped(server, is_tls) as pipe,
    ):
        await exchange(pipe, requests, fetch, requests * answer)


@pytest.mark.fault("outside-O18")
@BUFFERS
@LAYERS
async def test_while_memory_is_short_all_are_answered(
    is_tls: bool, buffers: dict[str, str]
) -> None:
    short = {"queued_max_request_bytes": "50000", "socket_request_max_bytes": "50000"}
    async with (
        serving(ECHO, tls=tls(is_tls), **short, **buffers) as server,
        piped(server, is_tls) as pipe,
        piped(server, is_tls) as other,
        looked_around(server),
    ):
        await asyncio.gather(
            exchange(pipe, REQUESTS, lambda n: ask(n, "k"), REQUESTS * answer_bytes("k")),
            exchange(other, REQUESTS, lambda n: ask(n, "k"), REQUESTS * answer_bytes("k")),
        )


@pytest.mark.fault("outside-O18")
@BUFFERS
@LAYERS
async def test_a_client_that_reads_nothing_for_long_is_answered_when_it_does(
    is_tls: bool, buffers: dict[str, str]
) -> None:
    """It has sent as much as the broker takes, and more is in all buffers."""
    key = "k" * 50
    requests = 60_000
    async with (
        serving(ECHO, tls=tls(is_tls), **buffers) as server,
        piped(server, is_tls, FIXED_BYTES) as pipe,
        looked_around(server),
    ):
        sending = asyncio.ensure_future(pipe.send_each(requests, lambda n: ask(n, key)))
        (connection,) = await until(
            lambda: [*server.listener.connections], "the connection is there"
        )
        await until(lambda: sending.done() or connection._reading_paused, "nothing more is taken")
        async with asyncio.timeout(DEADLINE_S):
            await pipe.read_up_to(requests * answer_bytes(key))
            await sending


@pytest.mark.fault("outside-O18")
async def test_bytes_that_are_taken_before_their_turn_have_a_bound() -> None:
    async with serving(ECHO, **FIXED) as server, piped(server, False, FIXED_BYTES) as pipe:
        sending = asyncio.ensure_future(pipe.send_each(200_000, lambda n: ask(n, "k" * 50)))
        (connection,) = await until(
            lambda: [*server.listener.connections], "the connection is there"
        )
        queued = server.listener.queued
        # Responses that are not taken count too.
        await until(
            lambda: queued.total >= AHEAD_BYTES and connection._reading_paused,
            "all that may be is taken",
        )
        assert queued.total < AHEAD_BYTES + 2 * READ_BYTES

        # A client that goes on reading nothing is read ever more seldom.
        for _ in range(600):
            server.listener.rotate_readers()
            await asyncio.sleep(0)
        assert server.listener.queued.total < AHEAD_BYTES + 12 * READ_BYTES
        assert not sending.done()
        sending.cancel()


@pytest.mark.fault("outside-O18")
async def test_who_sends_and_reads_nothing_is_idle_all_the_same() -> None:
    async with serving(ECHO, **FIXED) as server, piped(server, False, FIXED_BYTES) as pipe:
        sending = asyncio.ensure_future(pipe.send_each(200_000, lambda n: ask(n, "k" * 50)))
        (connection,) = await until(
            lambda: [*server.listener.connections], "the connection is there"
        )
        await until(lambda: connection._blocked and connection._reading_paused, "both are full")
        for _ in range(100):
            server.listener.rotate_readers()
            await asyncio.sleep(0)

        active_at, held_bytes = connection.last_active, server.listener.queued.total
        for _ in range(500):
            server.listener.rotate_readers()
            await asyncio.sleep(0)
        assert server.listener.queued.total > held_bytes, "it was read"
        assert connection.last_active == active_at
        sending.cancel()


@LAYERS
async def test_requests_of_a_client_that_has_closed_its_side_are_answered(is_tls: bool) -> None:
    """They were read before their turn, and so was the end."""
    key, requests = "k" * 100, 3000
    async with serving(ECHO, tls=tls(is_tls), **FIXED) as server, piped(server, is_tls) as pipe:
        # Over TLS nobody can close one side: there the last request alone is behind all others.
        sending = asyncio.ensure_future(pipe.send_each(requests, lambda n: ask(n, key)))
        if not is_tls:
            await asyncio.sleep(0)
            sending.add_done_callback(lambda _: pipe.sock.shutdown(socket.SHUT_WR))
        async with asyncio.timeout(DEADLINE_S):
            await pipe.read_up_to(requests * answer_bytes(key))
            await sending
        if not is_tls:
            assert await asyncio.get_running_loop().sock_recv(pipe.sock, 1) == b""


@pytest.mark.fault("outside-O18")
async def test_what_was_sent_arrives_though_a_request_behind_it_is_parked() -> None:
    """The kernel has taken all responses, and may be unable to send them: it is read once more."""
    is_done: list[bool] = []

    def handler(request: FindCoordinatorRequest, context: Any) -> Any:
        if request.key == "wait":
            response = echoed("wait")
            return Wait(("wait",), 600_000, lambda _: response if is_done else None)
        return echo(request, context)

    keys = ["k" * 200] * 60 + ["wait"]
    filler = 20_000
    before = 60 * answer_bytes("k" * 200)
    async with (
        serving({ApiKey.FIND_COORDINATOR: handler}, **RECEIVE_FIXED) as server,
        piped(server, False) as pipe,
        looked_around(server),
    ):

        async def send() -> None:
            for number, key in enumerate(keys):
                await pipe.send(ask(number, key))
            await pipe.send_each(filler, lambda n: ask(n, "f"))

        sending = asyncio.ensure_future(send())
        async with asyncio.timeout(DEADLINE_S):
            await pipe.read_up_to(before)
            is_done.append(True)
            server.purgatory.touch("wait")
            await pipe.read_up_to(before + answer_bytes("wait") + filler * answer_bytes("f"))
            await sending


@BUFFERS
@LAYERS
@pytest.mark.parametrize("fixed_bytes", [-1, FIXED_BYTES], ids=["", "client fixed"])
async def test_requests_of_our_clients_are_all_answered(
    is_tls: bool, buffers: dict[str, str], fixed_bytes: int
) -> None:
    context: ssl.SSLContext | None = client_context() if is_tls else None
    async with serving(ECHO, tls=tls(is_tls), **buffers) as server:
        connection = await Connection.open(
            "localhost",
            server.port,
            negotiate=False,
            tls=context,
            send_buffer_bytes=fixed_bytes,
            receive_buffer_bytes=fixed_bytes,
        )
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(5):
                answers = []
                for number in range(2000):
                    request = FindCoordinatorRequest(key=str(number))
                    answers.append(connection.send(request, version=0))
                    # Each leaves in a write of its own.
                    connection._write()
                responses = await asyncio.gather(*answers)
                assert [response.host for response in responses] == [
                    str(number) for number in range(2000)
                ]
        await connection.close()
