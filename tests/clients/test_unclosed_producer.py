"""A program that ends without closing its blocking producer."""

from __future__ import annotations

import subprocess
import sys
from uuid import uuid4

import pytest

from clients.admin import LATEST_TIME
from clients.blocking import Admin
from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, frozen
from tests.stage.waiting import DEADLINE_S

pytestmark = pytest.mark.fault("users-13")

PROGRAM = """
import os, signal, sys
from kgroup.blocking import Producer

address, topic, *stopped = sys.argv[1:]
producer = Producer({"bootstrap.servers": address})
producer.send_and_wait(topic, b"one")
for pid in stopped:
    os.kill(int(pid), signal.SIGSTOP)
producer.send(topic, b"two")
producer.send(topic, b"three")
"""


def run(cluster: DevCluster, *arguments: str) -> tuple[str, subprocess.CompletedProcess[str]]:
    """Run the program on a topic of its own; return the topic and how it ended."""
    topic = f"unclosed-{uuid4().hex[:8]}"
    cluster.create_topic(topic)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, cluster.address("bootstrap"), topic, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert ended.returncode == 0, ended.stderr
    return topic, ended


def test_records_of_a_producer_that_was_not_closed_arrive(dev_cluster: DevCluster) -> None:
    topic, ended = run(dev_cluster)
    partition = TopicPartition(topic, 0)
    with Admin(dev_cluster.address("bootstrap")) as admin:
        assert admin.list_offsets({partition: LATEST_TIME})[partition].offset == 3
    assert ended.stderr == ""


def test_records_that_cannot_be_sent_when_the_program_ends_are_counted(
    dev_cluster: DevCluster,
) -> None:
    pid = dev_cluster.pid("broker-0")
    try:
        _, ended = run(dev_cluster, str(pid))
    finally:
        # Goes on.
        with frozen(pid):
            pass
    # What is tried again in vain may be said before.
    assert ended.stderr.endswith("2 records were not acknowledged when the producer closed\n")


FORKED = """
import multiprocessing, sys
from kgroup.blocking import Producer

address, topic = sys.argv[1:]

def work():
    producer = Producer({"bootstrap.servers": address})
    for number in range(20):
        producer.send(topic, b"%d" % number)

children = [multiprocessing.get_context("fork").Process(target=work) for _ in range(3)]
for child in children:
    child.start()
for child in children:
    child.join()
print([child.exitcode for child in children])
"""


@pytest.mark.fault("strangers-136")
def test_records_of_forked_children_that_do_not_close_arrive(dev_cluster: DevCluster) -> None:
    topic = f"forked-{uuid4().hex[:8]}"
    dev_cluster.create_topic(topic)
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, dev_cluster.address("bootstrap"), topic],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (ended.stdout, ended.stderr) == ("[0, 0, 0]\n", "")
    partition = TopicPartition(topic, 0)
    with Admin(dev_cluster.address("bootstrap")) as admin:
        assert admin.list_offsets({partition: LATEST_TIME})[partition].offset == 60


AT_EXIT = """
import asyncio, atexit
from clients.transport.addresses import Addresses

async def attempt(address, timeout_ms):
    print(address)

atexit.register(lambda: asyncio.run(Addresses().try_each("localhost", 1, 1000, attempt)))
"""


def test_name_of_a_broker_is_resolved_when_the_program_ends() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_EXIT], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ended.stdout in ("127.0.0.1\n", "::1\n"), ended.stderr
