"""A client that is used on another event loop says so; it does not wait for what never comes."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from clients.admin import Admin
from clients.cluster_view import BrokerEndpoint
from clients.config import ClusterConfig
from clients.errors import OtherLoop
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import MessageStream
from clients.own_loop import OwnLoop
from clients.producer.producer import Producer
from clients.serializers import bytes_decoder
from clients.simple_consumer import SimpleConsumer
from clients.transport.connections import Connections
from tests.clients.scripted_broker import ScriptedBroker

pytestmark = pytest.mark.fault("scale-C6")
NOWHERE = "localhost:1"


@pytest.fixture
def loops() -> Iterator[tuple[asyncio.Runner, asyncio.Runner]]:
    with asyncio.Runner() as one, asyncio.Runner() as other:
        yield one, other


Loops = tuple[asyncio.Runner, asyncio.Runner]


async def check(own_loop: OwnLoop) -> None:
    own_loop.check()


def test_loop_of_the_first_use_is_the_clients_own(loops: Loops) -> None:
    own_loop = OwnLoop()
    for _ in range(2):
        loops[0].run(check(own_loop))

    with pytest.raises(OtherLoop, match="which still runs"):
        loops[1].run(check(own_loop))

    loops[0].close()
    with pytest.raises(OtherLoop, match="which has ended"):
        loops[1].run(check(own_loop))


def test_connection_is_not_opened_on_another_loop(loops: Loops) -> None:
    opened = []

    async def connect(host: str, port: int, **settings: Any) -> Any:
        opened.append(asyncio.get_running_loop())
        raise ConnectionRefusedError

    connections = Connections(ClusterConfig(), "me", connect)

    async def ask() -> None:
        with contextlib.suppress(ConnectionRefusedError):
            await connections.to(BrokerEndpoint(1, "localhost", 1))

    loops[0].run(ask())
    with pytest.raises(OtherLoop):
        loops[1].run(ask())
    assert opened == [loops[0].get_loop()]


def test_stream_of_a_loop_that_ended_raises_and_does_not_wait_for_ever(loops: Loops) -> None:
    async def make() -> MessageStream:
        stream = MessageStream(bytes_decoder, bytes_decoder, timeout_ms=0)
        with contextlib.suppress(Exception):
            await anext(stream)
        return stream

    async def read(stream: MessageStream) -> None:
        await anext(stream)

    stream = loops[0].run(make())
    loops[0].close()

    with pytest.raises(OtherLoop):
        loops[1].run(read(stream))


@pytest.mark.parametrize("call", ["send", "send_many", "flush", "close"])
def test_producer_refuses_another_loop_and_goes_on_serving_its_own(loops: Loops, call: str) -> None:
    async def begin() -> Producer:
        return await Producer(bootstrap_servers=NOWHERE).__aenter__()

    async def use(producer: Producer) -> None:
        if call == "send":
            await producer.send("t", b"v")
        elif call == "send_many":
            await producer.send_many("t", [b"v"])
        elif call == "flush":
            await producer.flush()
        else:
            await producer.close()

    producer = loops[0].run(begin())
    with pytest.raises(OtherLoop):
        loops[1].run(use(producer))
    loops[0].run(producer.close(0))


def test_connector_refuses_another_loop(loops: Loops) -> None:
    connector = ConsumerConnector(
        {"bootstrap.servers": NOWHERE, "group.id": "g", "membership": "coordinator"}
    )

    async def begin() -> None:
        await connector.__aenter__()

    loops[0].run(begin())
    with pytest.raises(OtherLoop):
        loops[1].run(connector.shutdown())
    loops[0].run(connector.shutdown())


@pytest.mark.fault("strangers-177")
def test_admin_and_simple_consumer_are_not_closed_on_another_loop(loops: Loops) -> None:
    broker = ScriptedBroker()

    async def begin() -> tuple[Admin, SimpleConsumer]:
        await broker.__aenter__()
        admin, consumer = Admin(broker.bootstrap), SimpleConsumer("127.0.0.1", broker.port)
        await admin.list_topics()
        await consumer.find_coordinator("g")
        return admin, consumer

    async def end(admin: Admin, consumer: SimpleConsumer) -> None:
        await admin.list_topics()
        await admin.close()
        await consumer.close()
        await broker.__aexit__(None, None, None)

    clients = loops[0].run(begin())
    for client in clients:
        with pytest.raises(OtherLoop):
            loops[1].run(client.close())
    loops[0].run(end(*clients))
