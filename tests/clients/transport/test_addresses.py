"""A broker's name with several addresses, of which some are dead."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from clients.errors import AuthenticationFailed, ConnectionFailed, NoSuchAddress
from clients.transport.addresses import Addresses
from clients.transport.connection import Connection
from tests.clients.scripted_broker import ScriptedBroker
from tests.stage.clock import OwnTimeLoop

R = TypeVar("R")

NAME = "brokers.example"
DEAD, ALIVE = "127.0.0.2", "127.0.0.1"


class NamingLoop(OwnTimeLoop):
    """A loop that knows the addresses of one name."""

    addresses: Sequence[str] = (DEAD, ALIVE)

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:
        if host != NAME:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in self.addresses]


def run(scene: Coroutine[Any, Any, R]) -> R:
    with asyncio.Runner(loop_factory=NamingLoop) as runner:
        return runner.run(scene)


@contextlib.contextmanager
def silent_server(port: int) -> Iterator[socket.socket]:
    """A stopped process: the system accepts connections, and nobody says anything."""
    with socket.socket() as server:
        server.bind((DEAD, port))
        server.listen()
        yield server


@pytest.mark.fault("strangers-22")
def test_a_silent_address_is_passed_over_and_comes_last_from_then_on() -> None:
    async def scene() -> tuple[list[str], float]:
        reached = []
        loop = asyncio.get_running_loop()
        async with ScriptedBroker() as broker:
            with silent_server(broker.port):
                for _ in range(3):
                    began_s = loop.time()
                    connection = await Connection.open(NAME, broker.port, connect_timeout_ms=60)
                    reached.append(connection.host)
                    await connection.close()
        return reached, loop.time() - began_s

    reached, last_s = run(scene())
    assert reached == [NAME] * 3
    assert last_s < 0.03


@pytest.mark.fault("strangers-22")
def test_the_next_attempt_begins_with_the_others_when_its_caller_gave_up() -> None:
    tried = []

    async def attempt(address: str, timeout_ms: int) -> str:
        tried.append((address, timeout_ms))
        if address == DEAD:
            await asyncio.Event().wait()
        return address

    async def scene() -> str:
        addresses = Addresses()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await addresses.try_each(NAME, 1, 10_000, attempt)
        return await addresses.try_each(NAME, 1, 10_000, attempt)

    assert run(scene()) == ALIVE
    assert tried == [(DEAD, 5000), (ALIVE, 5000)]


def test_a_failure_names_the_last_address_and_a_refused_login_tries_no_other() -> None:
    tried = []

    async def fail(address: str, timeout_ms: int) -> None:
        tried.append(address)
        raise ConnectionFailed(NAME, 1, "closed by the broker")

    async def refuse(address: str, timeout_ms: int) -> None:
        tried.append(address)
        raise AuthenticationFailed(NAME, 1, "who are you?")

    with pytest.raises(ConnectionFailed, match=rf"closed by the broker \({ALIVE}\)"):
        run(Addresses().try_each(NAME, 1, 10_000, fail))
    assert tried == [DEAD, ALIVE]

    with pytest.raises(AuthenticationFailed):
        run(Addresses().try_each(NAME, 1, 10_000, refuse))
    assert tried == [DEAD, ALIVE, DEAD]


def test_a_name_that_nobody_knows_cannot_be_connected_to() -> None:
    with pytest.raises(NoSuchAddress, match="Name or service not known"):
        run(Connection.open("nobody.example", 9092))
