"""A client that a forked child has inherited says so; it does not wait for ever."""

from __future__ import annotations

import json
import subprocess
import sys
from uuid import uuid4

import pytest

from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import DEADLINE_S

pytestmark = pytest.mark.fault("users-14")

IN_A_CHILD = """
import asyncio, json, os, signal, sys, time
from kgroup import Admin, ConsumerConnector, FetchRequest, Producer, SimpleConsumer, blocking
from kgroup.errors import KgroupError

bootstrap, topic = sys.argv[1:]
host, port = bootstrap.split(":")
settings = {"bootstrap.servers": bootstrap}
member = settings | {"membership": "coordinator", "group.id": topic}
member["auto.offset.reset"] = "smallest"
fetch = FetchRequest(topic, 0, 0, 1000)

def in_a_child(calls, fresh):
    sys.stdout.flush()
    if os.fork():
        assert os.wait()[1] == 0
        return
    # A call that hangs ends the child.
    signal.alarm(30)
    said = {}
    for name, call in calls.items():
        try:
            said[name] = repr(call())
        except Exception as error:
            said[name] = type(error).__name__
    print(json.dumps(said | {"fresh": fresh()}), flush=True)
    os._exit(0)
"""

BLOCKING = """
with (
    blocking.Producer(settings) as producer,
    blocking.Admin(settings) as admin,
    blocking.SimpleConsumer(host, int(port)) as consumer,
    blocking.ConsumerConnector(member) as connector,
):
    producer.send_and_wait(topic, b"one")
    producer.send_and_wait(topic, b"two")
    stream = connector.create_message_streams({topic: 1})[topic][0]
    next(stream), consumer.fetch(fetch), admin.list_topics()

    def fresh():
        with blocking.Admin(settings) as admin:
            return topic in admin.list_topics()

    in_a_child({
        "send": lambda: producer.send(topic, b"x"),
        "send_and_wait": lambda: producer.send_and_wait(topic, b"x"),
        "send_many": lambda: producer.send_many(topic, [b"x"]),
        "transaction": lambda: producer.transaction().__enter__(),
        "flush": producer.flush,
        "list_topics": admin.list_topics,
        "fetch": lambda: consumer.fetch(fetch),
        "next": lambda: next(stream),
        "next_batch": lambda: stream.next_batch(),
        "commit_offsets": connector.commit_offsets,
        "streams": lambda: connector.streams,
        "close": producer.close,
        "shutdown": connector.shutdown,
    }, fresh)
    # The parent goes on.
    print(producer.send_and_wait(topic, b"three").offset, next(stream).value, admin.list_topics())
"""

ON_A_LOOP = """
loop = asyncio.new_event_loop()

async def make():
    producer, admin, consumer = Producer(settings), Admin(settings), SimpleConsumer(host, int(port))
    connector = ConsumerConnector(member)
    await producer.send_and_wait(topic, b"one")
    await producer.send_and_wait(topic, b"two")
    stream = (await connector.create_message_streams({topic: 1}))[topic][0]
    await anext(stream), await consumer.fetch(fetch), await admin.list_topics()
    return producer, admin, consumer, connector, stream

producer, admin, consumer, connector, stream = loop.run_until_complete(make())
calls = {
    "send": lambda: producer.send(topic, b"x"),
    "send_many": lambda: producer.send_many(topic, [b"x"]),
    "flush": lambda: producer.flush(),
    "list_topics": lambda: admin.list_topics(),
    "fetch": lambda: consumer.fetch(fetch),
    "next": lambda: anext(stream),
    "commit_offsets": lambda: connector.commit_offsets(),
    "shutdown": lambda: connector.shutdown(),
}

async def fresh():
    async with Admin(settings) as admin:
        return topic in await admin.list_topics()

def on(run):
    return {name: lambda call=call: run(awaited(call)) for name, call in calls.items()}

async def awaited(call):
    return await call()

in_a_child(on(loop.run_until_complete), lambda: asyncio.run(fresh()))
in_a_child(on(asyncio.run), lambda: asyncio.run(fresh()))
"""


def run(cluster: DevCluster, program: str) -> list[str]:
    """Run a program with a topic of its own. Returns the lines that it prints."""
    topic = f"fork-{uuid4().hex[:8]}"
    cluster.create_topic(topic)
    done = subprocess.run(
        [sys.executable, "-c", IN_A_CHILD + program, cluster.address("bootstrap"), topic],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_blocking_clients_say_that_a_forked_child_has_none_of_them(dev_cluster: DevCluster) -> None:
    in_child, in_parent = run(dev_cluster, BLOCKING)
    said = json.loads(in_child)

    # What is closed in the child stays open in the parent.
    assert {name: said.pop(name) for name in ("close", "shutdown", "fresh")} == {
        "close": "None",
        "shutdown": "None",
        "fresh": True,
    }
    assert set(said.values()) == {"OtherProcess"}, said
    assert in_parent.startswith("2 b'two' ")


def test_clients_say_that_a_forked_child_has_none_of_them(dev_cluster: DevCluster) -> None:
    for line in run(dev_cluster, ON_A_LOOP):
        said = json.loads(line)
        assert said.pop("fresh") is True
        assert set(said.values()) == {"OtherProcess"}, said
