"""The connections of `kgroup serve`: nobody who is slow keeps others out."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from uvicorn import Config
from uvicorn.server import ServerState

from clients.serve.connections import (
    MAX_CONNECTIONS,
    REQUEST_S,
    RESPONSE_S,
    BoundedConnection,
)
from tests.clients.serve.serve_stage import get, serving
from tests.stage.cluster import DevCluster

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"


@attrs.define(eq=False)
class Wire(asyncio.Transport):
    """A transport that keeps what is written, and tells its protocol of its end at once."""

    stage: Stage
    written: bytearray = attrs.field(factory=bytearray)
    is_closed: bool = False
    protocol: BoundedConnection = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__init__()
        self.protocol = BoundedConnection(self.stage.config, self.stage.state, {})
        self.protocol.connection_made(self)

    def send(self, data: bytes) -> Wire:
        self.protocol.data_received(data)
        return self

    def write(self, data: Any) -> None:
        self.written += data

    def abort(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self.protocol.connection_lost(None)

    close = abort

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@attrs.define(eq=False)
class Stage:
    """A server whose application takes its time."""

    work_s: float = 0.0
    config: Config = attrs.field(init=False)
    state: ServerState = attrs.field(factory=ServerState)

    def __attrs_post_init__(self) -> None:
        self.config = Config(self._respond, interface="asgi3", log_config=None)

    async def _respond(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await asyncio.sleep(self.work_s)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})


async def passed(seconds: float) -> None:
    """Let time pass, which is virtual."""
    loop = asyncio.get_running_loop()
    reached = loop.create_future()
    loop.call_later(seconds, reached.set_result, None)
    await reached


@pytest.mark.virtual_time
@pytest.mark.fault("security-9")
@pytest.mark.parametrize("begin", [b"", HEAD, POST], ids=["nothing", "half a head", "no body"])
async def test_a_request_that_does_not_end_is_ended(begin: bytes) -> None:
    wire = Wire(Stage())
    if begin:
        wire.send(begin)
    for _ in range(int(REQUEST_S) - 1):
        await passed(1)
        if begin == HEAD:
            wire.send(b"a")
    assert not wire.is_closed
    await passed(1.5)
    assert wire.is_closed


@pytest.mark.virtual_time
@pytest.mark.fault("security-9")
async def test_a_next_request_has_as_long_as_the_first() -> None:
    wire = Wire(Stage()).send(HEAD + b"\r\n")
    await passed(1)
    assert b"done" in wire.written
    wire.send(HEAD)
    await passed(REQUEST_S - 1.5)
    assert not wire.is_closed
    await passed(2)
    assert wire.is_closed


@pytest.mark.virtual_time
async def test_a_response_may_take_longer_than_its_request() -> None:
    wire = Wire(Stage(work_s=10 * REQUEST_S)).send(HEAD + b"\r\n")
    await passed(10 * REQUEST_S + 1)
    assert b"done" in wire.written


@pytest.mark.virtual_time
async def test_who_takes_nothing_of_a_response_is_ended() -> None:
    wire = Wire(Stage(work_s=1)).send(HEAD + b"\r\n")
    wire.protocol.pause_writing()
    await passed(RESPONSE_S - 1)
    wire.protocol.resume_writing()
    wire.protocol.pause_writing()
    await passed(RESPONSE_S - 1)
    assert not wire.is_closed
    await passed(2)
    assert wire.is_closed


@pytest.mark.virtual_time
@pytest.mark.fault("security-9")
async def test_the_one_that_is_silent_longest_makes_room() -> None:
    stage = Stage(work_s=1)
    busy = Wire(stage).send(HEAD + b"\r\n")
    await passed(0.1)
    first = [Wire(stage).send(HEAD) for _ in range(3)]
    await passed(0.1)
    silent = [*first, *(Wire(stage).send(HEAD) for _ in range(MAX_CONNECTIONS - 4))]
    # Several come in one turn of the loop.
    more = [Wire(stage).send(HEAD + b"\r\n") for _ in range(3)]
    assert [wire.is_closed for wire in silent] == [True] * 3 + [False] * (MAX_CONNECTIONS - 4)
    assert len(stage.state.connections) == MAX_CONNECTIONS
    await passed(2)
    assert all(b"done" in wire.written for wire in (busy, *more))


@pytest.mark.virtual_time
async def test_a_connection_too_many_is_refused_while_all_are_served() -> None:
    stage = Stage(work_s=1)
    served = [Wire(stage).send(HEAD + b"\r\n") for _ in range(MAX_CONNECTIONS)]
    assert Wire(stage).is_closed
    await passed(2)
    assert all(b"done" in wire.written for wire in served)


# ---- the server


@pytest.mark.fault("security-9")
def test_half_requests_of_strangers_keep_nobody_out(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    with serving(dev_cluster, tmp_path / "h") as address, few_files() as connect:
        port = int(address.rstrip("/").rpartition(":")[2])
        held = [connect(port) for _ in range(5 * MAX_CONNECTIONS)]
        assert "kgroup_up" in get(address, "metrics")
        assert len(held) == 5 * MAX_CONNECTIONS


@contextlib.contextmanager
def few_files() -> Iterator[Callable[[int], socket.socket]]:
    """Open connections, of this process, which may have as many files as it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:

        def connect(port: int) -> socket.socket:
            held = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            held.sendall(HEAD)
            return held

        try:
            yield connect
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.fault("security-9")
def test_a_page_of_another_site_reads_nothing_by_a_name_of_its_own(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    allow = ("--allow-host", "Kgroup.example.org")
    with serving(dev_cluster, tmp_path / "h", *allow) as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        paths = ("/", "/metrics", "/api/v1/groups", "/api/v1/journal", "/page/page.js")
        for host in (f"127.0.0.1:{port}", f"localhost:{port}", "kgroup.example.org", "[::1]:1"):
            assert [status(port, path, host) for path in paths] == [200] * len(paths)
        for host in (f"rebound.example.net:{port}", "127.0.0.1.example.net", ""):
            assert [status(port, path, host) for path in paths] == [403] * len(paths)


@pytest.mark.fault("security-9")
def test_a_scraper_reaches_a_server_of_a_network_by_any_name(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    with serving(dev_cluster, tmp_path / "h", "--host", "0.0.0.0") as address:
        port = int(address.rstrip("/").rpartition(":")[2])
        assert status(port, "/metrics", "serve.example.net") == 200
        assert status(port, "/api/v1/groups", "serve.example.net") == 403


def status(port: int, path: str, host: str) -> int:
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request.encode())
        with connection.makefile("rb") as answer:
            return int(answer.readline().split()[1])
