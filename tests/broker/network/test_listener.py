"""A listener: when it serves, how many connections it takes, and which ones it closes."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import resource
import socket
from typing import Any

import pytest

from broker.network.addresses import own_host_name
from broker.network.dispatch import Dispatcher
from broker.network.listener import CLOSED_A_TURN, Listener, bind_socket
from broker.network.purgatory import Purgatory, Wait
from broker.settings.config import load_broker_config
from protocol.api_key import ApiKey
from tests.broker.served import ECHO, Client, ask, echoed, serving
from tests.broker.spawning import Spawned
from tests.stage.waiting import until

IDLE_S = 600

DISPATCHER = Dispatcher(ECHO, lambda: 0, lambda: 0)


def listener(where: str = "127.0.0.1:0", **settings: str) -> Listener:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config, _ = load_broker_config(
        {"zookeeper.connect": "zk:1", "listeners": f"PLAINTEXT://{where}"} | given
    )
    return Listener(config, Purgatory(), Spawned())


async def connect(port: int) -> Client:
    sock = socket.socket()
    sock.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    except OSError:
        sock.close()
        raise
    return Client(sock)


# ---- the port


async def test_who_connects_before_it_serves_is_served_then() -> None:
    made = listener()
    client = await connect(made.bind()["PLAINTEXT"])
    await client.send(ask(1, "early"))
    assert made.connections == set()
    await made.serve(DISPATCHER)
    assert await client.answer() == (1, "early")
    client.close()
    await made.close()


async def test_a_port_that_is_served_is_taken() -> None:
    first = listener()
    port = first.bind()["PLAINTEXT"]
    await first.serve(DISPATCHER)
    with pytest.raises(OSError, match="in use"):
        listener(f"127.0.0.1:{port}").bind()["PLAINTEXT"]
    await first.close()


@pytest.mark.fault("users-18")
async def test_the_error_of_a_port_that_is_taken_has_the_address_and_who_has_it() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(OSError, match="already in use by process") as refused:
            bind_socket("127.0.0.1", port)
    assert refused.value.filename == f"127.0.0.1:{port}"


async def test_a_port_is_taken_though_it_does_not_serve_yet() -> None:
    first = listener()
    port = first.bind()["PLAINTEXT"]
    with pytest.raises(OSError, match="in use"):
        listener(f"127.0.0.1:{port}").bind()["PLAINTEXT"]
    await first.close()


async def test_a_port_is_free_again_at_once() -> None:
    for _ in range(3):
        made = listener()
        port = made.bind()["PLAINTEXT"]
        await made.serve(DISPATCHER)
        client = await connect(port)
        await client.echo()
        await made.close()  # the broker closes first: the kernel keeps its end for a while
        client.close()
        again = listener(f"127.0.0.1:{port}")
        assert again.bind()["PLAINTEXT"] == port
        await again.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "localhost"])
async def test_an_empty_host_is_all_of_them_and_names_are_looked_up(host: str) -> None:
    made = listener(f"{host}:0")
    port = made.bind()["PLAINTEXT"]
    await made.serve(DISPATCHER)
    client = await connect(port)
    assert await client.echo(1, "k") == (1, "k")
    client.close()
    await made.close()


async def test_a_host_that_is_not_here_is_an_os_error() -> None:
    with pytest.raises(OSError, match="assign"):
        listener("192.0.2.1:0").bind()["PLAINTEXT"]


@pytest.mark.fault("strangers-25")
@pytest.mark.parametrize("host", ["a..b", 64 * "x", "no.host.invalid"])
async def test_a_host_that_is_none_is_an_os_error_that_names_it(host: str) -> None:
    with pytest.raises(OSError, match=f"{host}:9092"):
        bind_socket(host, 9092)


@pytest.mark.fault("strangers-25")
@pytest.mark.parametrize("name", ["a..b", 64 * "x", "no.host.invalid"])
def test_a_machine_whose_name_nobody_can_look_up_has_the_loopback_address(name: str) -> None:
    assert own_host_name(lambda: name) == "127.0.0.1"


async def test_connections_have_the_buffers_that_the_file_asks_for() -> None:
    settings = {"socket_send_buffer_bytes": "20000", "socket_receive_buffer_bytes": "30000"}
    async with serving(ECHO, **settings) as server:
        await (await server.client()).echo()
        (connection,) = server.listener.connections
        sock = connection._transport.get_extra_info("socket")  # type: ignore[union-attr]
        options = socket.SO_SNDBUF, socket.SO_RCVBUF
        sizes = [sock.getsockopt(socket.SOL_SOCKET, option) for option in options]
        assert sizes == [40_000, 60_000]  # the kernel doubles them for its own needs
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# ---- how many


async def test_one_connection_too_many_of_a_host_is_closed_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "broker.network.listener")
    async with serving(ECHO, max_connections_per_ip="2") as server:
        first, second = await server.client(), await server.client()
        await first.echo()
        await second.echo()
        third = await server.client()
        assert await third.is_closed()
        assert caplog.messages == [
            "Rejected connection from /127.0.0.1, address already has the configured maximum of 2 "
            "connections."
        ]
        assert await first.echo(1, "k") == (1, "k")


async def test_a_connection_that_ends_makes_room_for_another() -> None:
    async with serving(ECHO, max_connections_per_ip="1") as server:
        for n in range(3):
            client = await server.client()
            assert await client.echo(n, "k") == (n, "k")
            client.close()
            await until(lambda: not server.listener.connections, "it is forgotten")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_host_may_have_a_bound_of_its_own(host: str) -> None:
    settings = {
        "max_connections_per_ip": "0",
        "max_connections_per_ip_overrides": f"192.0.2.1:9,{host}:1",
    }
    async with serving(ECHO, **settings) as server:
        assert await (await server.client()).echo(1, "k") == (1, "k")
        assert await (await server.client()).is_closed()


def limit_with_reserve_at(descriptor: int) -> int:
    """Return a limit of open files that keeps those from `descriptor` on for logs."""
    return next(n for n in itertools.count(1) if n - n // 4 == descriptor)


async def test_connections_leave_descriptors_to_the_logs(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(ECHO) as server:
        first = await server.client()
        await first.echo()
        limit = limit_with_reserve_at(3)  # no connection has a lower descriptor
        server.listener.descriptor_limit = limit
        second = await server.client()
        assert await second.is_closed()
        # Clients try again and again, which is a line in ten seconds.
        third = await server.client()
        assert await third.is_closed()
        (line,) = caplog.messages
        assert line.startswith("PLAINTEXT: connection of 127.0.0.1 refused: ")
        assert line.endswith(
            f" of {limit} files are open; the rest is for logs: raise the limit (ulimit -n)"
        )
        server.listener.tells_again_s = 0
        fourth = await server.client()
        assert await fourth.is_closed()
        assert "refused, and 1 others before: " in caplog.messages[1]
        assert await first.echo(1, "k") == (1, "k")


async def test_reserve_of_descriptors_is_bounded() -> None:
    async with serving(ECHO) as server:
        server.listener.descriptor_limit = 100_000
        assert await (await server.client()).echo(1, "k") == (1, "k")


async def test_without_a_descriptor_accepting_rests_and_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It tries again in a second: until then nothing spins."""
    async with serving(ECHO) as server:
        waiting = Client(socket.create_connection(("127.0.0.1", server.port)))
        waiting.sock.setblocking(False)  # connected by the kernel, and not accepted yet
        server.clients.append(waiting)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.open(os.devnull, os.O_RDONLY)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            await waiting.send(ask(1, "k"))
            await until(lambda: caplog.records, "there is no descriptor")
            for _ in range(1000):
                await asyncio.sleep(0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(caplog.records) == 1
        assert "PLAINTEXT: no connection can be accepted for 1.0 s" in caplog.text
        assert await waiting.answer() == (1, "k")


# ---- whom it lets go


async def test_an_idle_connection_is_closed_and_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "broker.network.listener")
    async with serving(ECHO) as server:
        client = await server.client()
        now = asyncio.get_running_loop().time()
        await client.echo()
        server.listener.close_idle(now + IDLE_S - 1)
        assert await client.echo(1, "k") == (1, "k")
        server.listener.close_idle(asyncio.get_running_loop().time() + IDLE_S + 1)
        assert await client.is_closed()
        assert caplog.messages == [
            f"{client.name}: idle connection closed (connections.max.idle.ms)"
        ]


async def test_a_connection_that_never_asked_anything_is_idle_too() -> None:
    async with serving(ECHO) as server:
        client = await server.client()
        await until(lambda: server.listener.connections, "it is accepted")
        server.listener.close_idle(asyncio.get_running_loop().time() + IDLE_S + 1)
        assert await client.is_closed()


async def test_idleness_without_bound_is_never_ended() -> None:
    async with serving(ECHO, connections_max_idle_ms="-1") as server:
        client = await server.client()
        await client.echo()
        server.listener.close_idle(asyncio.get_running_loop().time() + 1e9)
        assert await client.echo(1, "k") == (1, "k")


async def test_a_connection_whose_request_waits_is_not_idle() -> None:
    def handler(request: Any, context: Any) -> Any:
        return Wait(("key",), 60_000, lambda expired: echoed("late"))

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        client = await server.client()
        await client.send(ask(1))
        await until(lambda: server.purgatory.parked, "it waits")
        server.listener.close_idle(asyncio.get_running_loop().time() + 1e9)
        server.purgatory.touch("key")
        assert await client.answer() == (1, "late")


async def test_a_client_that_never_takes_its_answers_is_idle() -> None:
    async with serving(ECHO) as server:
        stuck, other = await server.client(receive_buffer_bytes=10_000), await server.client()
        sending = asyncio.ensure_future(stuck.send(*(ask(n, "k" * 30_000) for n in range(1000))))
        for n in range(200):
            await other.echo(n)
        server.listener.close_idle(asyncio.get_running_loop().time() + 1e9)
        with pytest.raises(ConnectionError):
            await sending
        await until(lambda: not server.listener.connections, "they are forgotten")


@pytest.mark.parametrize("why", ["idle", "late"])
async def test_many_connections_are_closed_some_of_them_a_turn(why: str) -> None:
    async with serving(ECHO) as server:
        many = 2 * CLOSED_A_TURN + 1
        for _ in range(many):
            await (await server.client()).send(b"\0\0")
        connections = server.listener.connections
        await until(
            lambda: sum(one.was_read for one in connections) == many, "all have begun a request"
        )
        now = asyncio.get_running_loop().time() + 1e9
        close = server.listener.close_idle if why == "idle" else server.listener.close_late
        close(now)
        assert sum(one.is_closing for one in connections) == CLOSED_A_TURN
        await until(lambda: not connections, "the others are closed too")


async def test_closing_lets_go_of_all_and_forgets_what_waits() -> None:
    def handler(request: Any, context: Any) -> Any:
        return Wait(("key",), 60_000, lambda expired: None)

    async with serving({ApiKey.FIND_COORDINATOR: handler}) as server:
        idle, waits = await server.client(), await server.client()
        await waits.send(ask(1))
        await until(lambda: len(server.listener.connections) == 2, "both are accepted")
        await until(lambda: server.purgatory.parked, "one waits")
        await server.listener.close()
        assert (server.listener.connections, server.purgatory.parked) == (set(), 0)
        assert await idle.is_closed()
        assert await waits.is_closed()
        with pytest.raises(ConnectionRefusedError):
            await connect(server.port)
