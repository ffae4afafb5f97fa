"""Strangers send parts of frames and of logins, and then nothing: nobody else waits for them.

Nor for a client whose requests wait for long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from broker.network.connection import AHEAD_BYTES, STRANGER_READ_BYTES, ClientConnection
from broker.network.deadlines import FRAME_BASE_S, FRAME_SILENCE_S, LOGIN_STEP_S
from broker.network.dispatch import Handler
from broker.network.purgatory import Wait
from broker.network.queued_bytes import STRANGER_FREE_BYTES, STRANGERS_PART
from broker.network.request_context import RequestContext
from broker.network.session import ANONYMOUS, Principal, Session, SessionRefused
from core_log.directory import LogDirectory
from protocol.api_key import ApiKey
from protocol.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.network.file_responses import fetch, files
from tests.broker.served import ECHO, Client, Server, ask, echo, serving
from tests.stage.waiting import until

LIMIT = 4_000_000
FRAME_BYTES = 512 * 1024
FRAME = FRAME_BYTES.to_bytes(4, "big") + bytes(FRAME_BYTES)
HALF = FRAME[: len(FRAME) // 2]
USERS = {b"in": "alice", b"on": "bob"}


@attrs.define(eq=False)
class Door:
    """A session that lets in whoever says so."""

    takes_frames: bool = True
    principal: Principal = ANONYMOUS
    max_frame_bytes: int | None = FRAME_BYTES

    def receive(self, frame: memoryview) -> bytes | None:
        if bytes(frame) not in USERS:
            raise SessionRefused("a stranger")
        self.takes_frames, self.max_frame_bytes = False, None
        self.principal = Principal("User", USERS[bytes(frame)])
        return bytes(4)


@contextlib.asynccontextmanager
async def guarded(
    is_guarded: bool = True, handlers: Mapping[ApiKey, Handler] = ECHO
) -> AsyncIterator[Server]:
    """Serve a listener with logins, or one without."""
    settings = {"queued_max_request_bytes": str(LIMIT), "socket_request_max_bytes": str(LIMIT)}
    async with serving(handlers, **settings) as server:

        def door(listener: str) -> Session:
            return Door()

        if is_guarded:
            server.listener.open_session = door
        yield server


async def log_in(server: Server, password: bytes = b"in") -> Client:
    client = await server.client()
    await client.send(len(password).to_bytes(4, "big") + password)
    assert await client.receive() == b""
    return client


async def flood(server: Server, strangers: int, part: bytes) -> list[Client]:
    """Have strangers send a part of a frame each, as far as the broker takes it."""
    clients = [await server.client() for _ in range(strangers)]
    for client in clients:
        with contextlib.suppress(BlockingIOError):
            client.sock.send(part)
    before = -1
    # All that is taken has been taken when nothing moves any more.
    while before != server.listener.queued.total:
        before = server.listener.queued.total
        for _ in range(200):
            await asyncio.sleep(0)
    return clients


def now() -> float:
    return asyncio.get_running_loop().time()


def only(server: Server) -> ClientConnection:
    (connection,) = server.listener.connections
    return connection


@pytest.mark.fault("security-2")
async def test_strangers_take_a_part_of_the_memory_and_others_are_served() -> None:
    strangers = 100
    async with guarded() as server:
        user = await log_in(server)
        await flood(server, strangers, FRAME[:-1])

        taken = server.listener.queued.total
        free = strangers * (STRANGER_FREE_BYTES + STRANGER_READ_BYTES)
        assert taken < LIMIT / STRANGERS_PART + FRAME_BYTES + free

        # Who was there, and who comes now, with small requests and with a large one.
        for client in (user, await log_in(server)):
            for number in range(20):
                assert await client.echo(number, "k") == (number, "k")
            assert await client.echo(1, "k" * 30_000) == (1, "k" * 30_000)


@pytest.mark.fault("security-2")
async def test_incomplete_frames_without_logins_keep_none_from_being_read_between_frames() -> None:
    async with guarded(is_guarded=False) as server:
        client = await server.client()
        await client.echo()
        await flood(server, 60, FRAME[:-1])
        for number in range(20):
            assert await client.echo(number, "k") == (number, "k")
        assert await client.echo(1, "k" * 30_000) == (1, "k" * 30_000)
        assert await (await server.client()).echo(2, "k") == (2, "k")


@pytest.mark.fault("security-2")
@pytest.mark.parametrize("is_guarded", [True, False], ids=["strangers", "clients"])
async def test_frames_that_are_never_completed_are_given_up_and_their_memory_is_free(
    is_guarded: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker.network.listener")
    async with guarded(is_guarded) as server:
        clients = await flood(server, 5, HALF)
        assert server.listener.queued.total > 0
        server.listener.close_late(now() + FRAME_SILENCE_S - 5)
        assert len(server.listener.connections) == 5
        server.listener.close_late(now() + FRAME_SILENCE_S + 1)
        for client in clients:
            assert await client.is_closed()
        await until(lambda: not server.listener.connections, "they are forgotten")
        assert server.listener.queued.total == 0
    assert caplog.messages[0].endswith(
        ": connection closed: nothing came for 30 s within a request"
    )


@pytest.mark.fault("security-2")
async def test_size_of_a_frame_that_is_not_whole_is_given_up_too() -> None:
    async with guarded(is_guarded=False) as server:
        client = await server.client()
        await client.send(b"\0\0")
        await until(
            lambda: bool(server.listener.connections) and only(server).was_read, "it is read"
        )
        server.listener.close_late(now() + FRAME_SILENCE_S + 1)
        assert await client.is_closed()


@pytest.mark.fault("security-2")
async def test_who_never_goes_on_with_a_login_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "broker.network.listener")
    async with guarded() as server:
        user, stranger = await log_in(server), await server.client()
        name = stranger.name
        await until(lambda: len(server.listener.connections) == 2, "both are accepted")
        server.listener.close_late(now() + LOGIN_STEP_S + 1)
        assert await stranger.is_closed()
        assert await user.echo(1, "k") == (1, "k")
    assert caplog.messages == [
        f"{name}: connection closed: a step of the login took longer than 30 s"
    ]


async def test_who_sends_on_is_not_late() -> None:
    async with guarded(is_guarded=False) as server:
        client = await server.client()
        await client.send(FRAME[:100_000])
        await until(lambda: server.listener.queued.total > 90_000, "it is read")
        only(server)._read_at = now() + 2 * FRAME_BASE_S - 1  # something has come just before
        server.listener.close_late(now() + 2 * FRAME_BASE_S)
        assert not only(server).is_closing


async def test_bytes_that_wait_for_us_are_not_late() -> None:
    """After a stall of the broker timers are due before anything is read."""
    async with guarded(is_guarded=False) as server:
        client = await server.client()
        await client.send(HALF)
        await until(lambda: server.listener.queued.total == len(HALF) - 4, "it is read")
        only(server).pause_reading()
        await client.send(FRAME[len(HALF) :][:1000])
        server.listener.close_late(now() + 2 * FRAME_BASE_S)
        assert not only(server).is_closing


async def test_requests_that_wait_for_us_are_not_late() -> None:
    async with guarded(is_guarded=False) as server:
        client = await server.client()
        await client.echo()
        only(server)._throttle(600_000)
        await client.send(ask(1), ask(2))
        await until(
            lambda: only(server).has_unread or only(server)._has_more_input, "they are there"
        )
        server.listener.close_late(now() + 2 * FRAME_BASE_S)
        assert not only(server).is_closing


@pytest.mark.fault("outside-O18")
async def test_requests_are_taken_while_a_file_is_sent(tmp_path: Path) -> None:
    file = LogDirectory(tmp_path).open_segment("file")
    file.append([bytes(8_000_000)])
    async with serving(files(file.range(0, 8_000_000)), socket_send_buffer_bytes="20000") as server:
        client = await server.client(receive_buffer_bytes=10_000)
        await client.send(fetch(1))
        await until(
            lambda: bool(server.listener.connections) and only(server)._sending is not None,
            "it is sent",
        )
        sending = asyncio.ensure_future(client.send(*(ask(n, "k" * 1000) for n in range(5000))))
        await until(lambda: server.listener.queued.total >= AHEAD_BYTES, "they are taken")
        sending.cancel()


async def test_requests_of_one_user_that_wait_for_long_keep_no_other_user_waiting() -> None:
    """As fetches do that ask for more than there will be."""
    size = 32_000

    def wait_for_long(request: FindCoordinatorRequest, context: RequestContext) -> Any:
        if len(request.key) < size:
            return echo(request, context)
        return Wait(("long",), 60_000, lambda expired: None)

    greedy = 2 * LIMIT // size
    async with guarded(handlers={ApiKey.FIND_COORDINATOR: wait_for_long}) as server:
        bob = await log_in(server, b"on")
        await bob.echo()
        clients = [await log_in(server) for _ in range(greedy)]
        for client in clients:
            await client.echo()
        for client in clients:
            await client.send(ask(1, "k" * size))
        await until(lambda: server.listener.queued.total > LIMIT // 2, "they wait")

        for client in (bob, await log_in(server, b"on")):
            for number in range(20):
                assert await client.echo(number, "k") == (number, "k")
        assert server.listener.queued.total < 0.6 * LIMIT
