"""Limits of connections at listeners: who waits, who is closed, and what changes while they serve
(DynamicConnectionQuotaTest and SocketServerTest of Kafka)."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from broker.network.listener import Listener
from broker.network.purgatory import Purgatory
from broker.settings.config import load_broker_config
from tests.broker.served import ECHO, Client, Server, ask, serving
from tests.broker.spawning import Spawned
from tests.stage.clock import run_in_virtual_time
from tests.stage.waiting import until

TWO_LISTENERS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter_broker_listener_name": "INTERNAL",
}


def set_limits(server: Server, **settings: str) -> None:
    """Change the limits as a changed setting of the broker does."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    config, _ = load_broker_config({**server.config.given, **given})
    server.listener.update_limits(config.connection_limits)


async def served(server: Server, number: int, listener: str = "PLAINTEXT") -> list[Client]:
    """Connect so many clients, one after the other, and have each one served."""
    clients = []
    for _ in range(number):
        clients.append(await server.client(listener))
        await clients[-1].echo()
    return clients


async def waits(server: Server, client: Client) -> None:
    """Check that a client which has sent a request is not accepted: others are meanwhile."""
    accepted = len(server.listener.connections)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(server.listener.connections) == accepted
    with pytest.raises(BlockingIOError):
        client.sock.recv(1)


# ---- places


async def test_a_client_without_a_place_waits_until_another_goes() -> None:
    async with serving(ECHO, max_connections="2") as server:
        first, _ = await served(server, 2)
        third = await server.client()
        await third.send(ask(3, "late"))
        await waits(server, third)
        first.close()
        assert await third.answer() == (3, "late")
        assert server.listener.blocked_s()["PLAINTEXT"] > 0


async def test_a_listener_s_own_limit_keeps_only_its_clients_waiting() -> None:
    limit = {"listener.name.plaintext.max.connections": "1"}
    async with serving(ECHO, **TWO_LISTENERS, **limit) as server:
        (first,) = await served(server, 1)
        waiting = await server.client()
        await waiting.send(ask(2, "late"))
        await served(server, 3, "INTERNAL")
        await waits(server, waiting)
        first.close()
        assert await waiting.answer() == (2, "late")


async def test_a_broker_gets_the_place_of_the_client_that_is_silent_longest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "broker.network.listener")
    async with serving(ECHO, **TWO_LISTENERS, max_connections="3") as server:
        first, second, third = await served(server, 3)
        await first.echo(1, "k")
        (broker,) = await served(server, 1, "INTERNAL")
        assert await second.is_closed()
        assert caplog.messages == [f"{second.name}: closed to make room (max.connections)"]
        for client in (first, third, broker):
            assert await client.echo(2, "k") == (2, "k")
        assert len(server.listener.connections) == 3


async def test_brokers_do_not_make_room_for_each_other() -> None:
    async with serving(ECHO, **TWO_LISTENERS, max_connections="2") as server:
        brokers = await served(server, 2, "INTERNAL")
        waiting = await server.client("INTERNAL")
        await waiting.send(ask(3, "late"))
        await waits(server, waiting)
        for broker in brokers:
            assert await broker.echo(1, "k") == (1, "k")
        brokers[0].close()
        assert await waiting.answer() == (3, "late")


async def test_a_lower_limit_closes_those_that_were_silent_longest() -> None:
    async with serving(ECHO) as server:
        clients = await served(server, 5)
        await clients[0].echo(1, "k")
        set_limits(server, max_connections="2")
        for silent in clients[1:4]:
            assert await silent.is_closed()
        for client in (clients[0], clients[4]):
            assert await client.echo(2, "k") == (2, "k")


async def test_a_connection_that_is_just_accepted_can_be_closed_too() -> None:
    async with serving(ECHO) as server:
        client = await server.client()
        while not server.listener.connections:
            await asyncio.sleep(0)
        set_limits(server, max_connections="0")
        assert await client.is_closed()
        assert server.listener.quotas.total == 0


async def test_a_higher_limit_lets_those_in_who_wait() -> None:
    async with serving(ECHO, max_connections="1") as server:
        await served(server, 1)
        waiting = [await server.client() for _ in range(3)]
        for number, client in enumerate(waiting):
            await client.send(ask(number, "late"))
        await waits(server, waiting[0])
        set_limits(server, max_connections="3")
        assert [await client.answer() for client in waiting[:2]] == [(0, "late"), (1, "late")]
        await waits(server, waiting[2])


async def test_no_listener_gets_all_the_places_that_several_wait_for() -> None:
    settings = {**TWO_LISTENERS, "listeners": TWO_LISTENERS["listeners"] + ",THIRD://127.0.0.1:0"}
    settings["listener_security_protocol_map"] += ",THIRD:PLAINTEXT"
    async with serving(ECHO, **settings, max_connections="1") as server:
        clients = {"PLAINTEXT": await served(server, 1), "THIRD": []}
        for name, waiting in clients.items():
            for _ in range(4):
                waiting.append(await server.client(name))
                await waiting[-1].send(ask(1, name))

        order = []
        (holder,) = server.listener.connections
        for _ in range(4):
            clients[holder.listener].pop(0).close()
            await until(
                lambda before=holder: server.listener.connections not in ({before}, set()),
                "somebody else has the place",
            )
            (holder,) = server.listener.connections
            order.append(holder.listener)
            assert await clients[holder.listener][0].answer() == (1, holder.listener)
        assert set(order) == {"PLAINTEXT", "THIRD"}


# ---- addresses


async def test_the_limit_of_an_address_can_change() -> None:
    async with serving(ECHO, max_connections_per_ip="1") as server:
        await served(server, 1)
        assert await (await server.client()).is_closed()
        set_limits(server, max_connections_per_ip="2")
        await served(server, 1)
        assert await (await server.client()).is_closed()


async def test_an_override_for_a_host_can_change() -> None:
    async with serving(ECHO, max_connections_per_ip="1") as server:
        await served(server, 1)
        set_limits(server, max_connections_per_ip_overrides="localhost:3")
        await until(lambda: bool(server.listener.quotas.of_addresses), "the host is looked up")
        await served(server, 2)
        assert await (await server.client()).is_closed()


async def test_an_override_for_an_unknown_host_leaves_the_others_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    overrides = "127.0.0.1:1"
    async with serving(ECHO, max_connections_per_ip_overrides=overrides) as server:
        set_limits(server, max_connections_per_ip_overrides=f"no.host.invalid:3,{overrides}")
        await until(lambda: caplog.records, "the host is looked up")
        line = "the limits stay as they were: max.connections.per.ip.overrides: no.host.invalid: "
        assert caplog.messages[0].startswith(line)
        await served(server, 1)
        assert await (await server.client()).is_closed()


@pytest.mark.fault("strangers-25")
@pytest.mark.parametrize("host", ["no.host.invalid", "a..b"])
def test_an_unknown_host_of_an_override_is_named_at_the_start(host: str) -> None:
    settings = {"max.connections.per.ip.overrides": f"{host}:3"}
    config, _ = load_broker_config({"zookeeper.connect": "zk:1"} | settings)
    with pytest.raises(OSError, match=rf"max\.connections\.per\.ip\.overrides: {host}: "):
        Listener(config, Purgatory(), Spawned()).bind()


# ---- rates of addresses


def is_open(client: Client) -> bool:
    """Return whether the broker has neither closed nor answered."""
    try:
        client.sock.recv(1)
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    return False


def test_a_connection_beyond_the_quota_of_its_address_is_kept_unread_and_closed_late() -> None:
    async def scene() -> list[bool]:
        async with serving(ECHO) as server:
            server.listener.quotas.set_quota("here", ["127.0.0.1"], 1)
            clients = [await server.client() for _ in range(11)]
            await asyncio.sleep(0.9)
            refused = clients[-1]
            opened = [is_open(refused)]
            assert server.listener.quotas.total == 10
            await asyncio.sleep(0.2)
            opened.append(is_open(refused))
            return opened

    assert run_in_virtual_time(scene()) == [True, False]


def test_of_connections_beyond_a_quota_not_all_are_kept() -> None:
    async def scene() -> list[bool]:
        async with serving(ECHO) as server:
            server.listener.max_delayed = 2
            server.listener.quotas.set_default_quota(0)
            clients = [await server.client() for _ in range(5)]
            await asyncio.sleep(0.5)
            return [is_open(client) for client in clients]

    assert run_in_virtual_time(scene()) == [False, False, False, True, True]


async def test_those_that_are_kept_are_closed_with_the_listener() -> None:
    async with serving(ECHO) as server:
        server.listener.quotas.set_default_quota(0)
        client = await server.client()
        await until(lambda: server.listener.delayed, "it is refused")
        await server.listener.close()
        assert await client.is_closed()


# ---- errors


async def test_a_connection_that_breaks_before_it_has_a_transport_counts_no_more() -> None:
    class Broken(socket.socket):
        def setsockopt(self, *arguments: Any) -> None:
            raise OSError("Invalid argument")

    class Listening(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            accepted, address = super().accept()
            return Broken(fileno=accepted.detach()), address

    def bind(host: str, port: int) -> socket.socket:
        listening = Listening()
        listening.setblocking(False)
        socket.socket.bind(listening, (host, port))
        return listening

    async with serving(ECHO, open_socket=bind) as server:
        client = await server.client()
        assert await client.is_closed()
        assert (server.listener.connections, server.listener.quotas.total) == (set(), 0)
