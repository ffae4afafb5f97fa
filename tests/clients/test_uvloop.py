"""All clients on uvloop's event loop, which `uvicorn[standard]` takes by itself."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from clients.admin import Admin, NewTopic
from clients.errors import RequestTimedOut
from clients.high_level.connector import ConsumerConnector
from clients.patience import patience
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from clients.transport.connection import Connection
from groups.event_timers import EventTimers
from protocol.api_key import ApiKey
from protocol.messages.list_groups import ListGroupsRequest
from protocol.sasl.exchange import SCRAM_SHA_512
from protocol.topic_partition import TopicPartition
from tests.clients.scripted_broker import SILENCE, ScriptedBroker
from tests.stage.certificates import Authority
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, first_line
from tests.stage.sasl_broker import SaslBroker
from tests.stage.waiting import DEADLINE_S

uvloop = pytest.importorskip("uvloop", reason="missing tool: uvloop")

pytestmark = pytest.mark.fault("users-2")
VALUES = [b"v%d" % n for n in range(500)]


def run_on_uvloop(scenario: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, DEADLINE_S))


def test_request_without_a_response_is_given_up_on_uvloop() -> None:
    """Its clock counts milliseconds: a timer may ring early, and is then due at once."""

    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            broker.answers[ApiKey.LIST_GROUPS] = lambda _: SILENCE
            for timeout_ms in (0, 1, 7, 20):
                connection = await Connection.open("127.0.0.1", broker.port)
                with pytest.raises(RequestTimedOut):
                    await connection.call(ListGroupsRequest(), timeout_ms=timeout_ms)

    run_on_uvloop(scenario())


@pytest.mark.parametrize("limit_s", [0.0, 0.0004, 0.0104])
def test_patience_ends_on_uvloop(limit_s: float) -> None:
    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with patience(limit_s):
                await asyncio.get_running_loop().create_future()

    run_on_uvloop(scenario())


@pytest.mark.parametrize("delay_ms", [0, 0.4, 10.4])
def test_event_of_a_timer_comes_on_uvloop(delay_ms: float) -> None:
    async def scenario() -> None:
        events = asyncio.Queue[str]()
        timers = EventTimers(events.put_nowait)
        timers.set("first", delay_ms)
        timers.set("second", delay_ms)
        assert {await events.get(), await events.get()} == {"first", "second"}

    run_on_uvloop(scenario())


def new_topic(cluster: DevCluster) -> str:
    topic = f"uvloop-{uuid4().hex[:8]}"
    cluster.create_topic(topic)
    return topic


def test_producer_and_simple_consumer_work_on_uvloop(dev_cluster: DevCluster) -> None:
    topic = new_topic(dev_cluster)
    settings = {"bootstrap.servers": dev_cluster.address("bootstrap")}

    async def scenario() -> None:
        async with Producer(settings, acks="all") as producer:
            await asyncio.gather(*[await producer.send(topic, value) for value in VALUES])
        async with Producer(settings, transactional_id=topic) as producer, producer.transaction():
            await producer.send(topic, b"in a transaction")
        async with await SimpleConsumer.for_leader(settings, topic, 0) as consumer:
            fetched = await consumer.fetch(FetchRequest(topic, 0, 0, 1 << 20))
        assert [record.value for record in fetched] == [*VALUES, b"in a transaction"]

    run_on_uvloop(scenario())


IN_ZOOKEEPER = {"offsets.storage": "kafka"}
AT_COORDINATOR = {"membership": "coordinator"}


@pytest.mark.parametrize("kind", [IN_ZOOKEEPER, AT_COORDINATOR], ids=["zookeeper", "coordinator"])
def test_member_of_a_group_works_on_uvloop(dev_cluster: DevCluster, kind: dict[str, str]) -> None:
    topic = new_topic(dev_cluster)
    bootstrap = dev_cluster.address("bootstrap")
    settings = kind | {"group.id": topic, "auto.offset.reset": "smallest"}
    if kind is IN_ZOOKEEPER:
        settings["zookeeper.connect"] = dev_cluster.address("zookeeper")
    else:
        settings["bootstrap.servers"] = bootstrap

    async def scenario() -> None:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            await producer.send_many(topic, VALUES)
        async with ConsumerConnector(settings) as connector:
            (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
            assert [(await anext(stream)).value for _ in VALUES] == VALUES
        async with Admin(bootstrap) as admin:
            offsets = await admin.group_offsets(topic)
        # The last message counts when the next one is asked for.
        assert offsets[TopicPartition(topic, 0)].offset == len(VALUES) - 1

    run_on_uvloop(scenario())


def test_client_logs_in_over_tls_on_uvloop(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "INSIDE://localhost:0,SALTED://localhost:0",
        "listener.security.protocol.map": "INSIDE:SASL_PLAINTEXT,SALTED:SASL_SSL",
        "ssl.keystore.location": authority.issue("broker.pem", "localhost"),
    }

    async def scenario(client: dict[str, str]) -> None:
        async with Admin(client) as admin:
            assert await admin.create_topics([NewTopic("t", 1, 1)]) == {"t": None}
        async with Producer(client) as producer:
            # More than one record of TLS.
            assert (await producer.send_and_wait("t", bytes(500_000))).offset == 0

    with SaslBroker(tmp_path, settings) as broker:
        tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": authority.trusted}
        run_on_uvloop(scenario(broker.client(SCRAM_SHA_512) | tls))


def test_blocking_clients_work_where_uvloop_is_installed(dev_cluster: DevCluster) -> None:
    """For all loops that the process makes, as uvicorn did it before 0.36."""
    topic = new_topic(dev_cluster)
    program = f"""
import asyncio, uvloop
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
from kgroup.blocking import Admin, Producer
settings = {{"bootstrap.servers": {dev_cluster.address("bootstrap")!r}}}
with Producer(settings) as producer, Admin(settings) as admin:
    assert type(producer._loop._loop) is uvloop.Loop
    print(producer.send_and_wait({topic!r}, b"v").offset, {topic!r} in admin.list_topics())
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.stdout == "0 True\n", done.stderr


APPLICATION = """
import contextlib, socket, sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from kgroup import Admin, Producer, blocking

settings = {"bootstrap.servers": sys.argv[1]}
topic = sys.argv[2]

@contextlib.asynccontextmanager
async def lifespan(app):
    async with Producer(settings) as app.state.producer, Admin(settings) as app.state.admin:
        yield

async def send(request):
    sent = await request.app.state.producer.send_and_wait(topic, b"v")
    return JSONResponse([sent.offset, topic in await request.app.state.admin.list_topics()])

def send_blocking(request):
    with blocking.Producer(settings) as producer:
        return JSONResponse(producer.send_and_wait(topic, b"v").offset)

routes = [Route("/send", send), Route("/blocking", send_blocking)]
app = Starlette(routes=routes, lifespan=lifespan)
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, loop="uvloop")).run([listener])
"""


def test_application_under_uvicorn_sends_by_both_kinds_of_clients(dev_cluster: DevCluster) -> None:
    """As FastAPI's do, which is Starlette in this."""
    topic = new_topic(dev_cluster)
    with subprocess.Popen(
        [sys.executable, "-c", APPLICATION, dev_cluster.address("bootstrap"), topic],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as application:
        try:
            port = first_line(application).strip()
            answers = [
                json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=60))
                for path in ("send", "blocking")
            ]
        finally:
            application.terminate()
    assert answers == [[0, True], 1]
