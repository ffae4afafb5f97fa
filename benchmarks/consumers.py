"""Measure consumers of ours whose membership is with the coordinator.

A fourth joins three that own 300 partitions, beside Java's consumers: each is a process, all at the
same broker of ours, with cooperative-sticky assignment and a heartbeat every HEARTBEAT_MS. The
clock starts when the coordinator has the newcomer's JoinGroup, by the event that it writes, and
stops when the newcomer was given the message of its last partition. Each partition has one message,
and nothing is committed.

Streams are compared with the same streams in a group that ZooKeeper keeps.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from benchmarks.brokers import Broker
from benchmarks.clients import TOPIC_BYTES, consume_streams, rate
from benchmarks.fetch import fill
from benchmarks.load import LoadError
from benchmarks.rounds import Rounds, alternate
from benchmarks.table import Beside, Row, at_least, at_most
from clients.producer.producer import Producer
from tests.interop.driven_member import DrivenMember
from tests.interop.stock_consumers import COOPERATIVE, JAVA_2_8, Kind
from tests.stage.processes import ROOT, command_line

PARTITIONS = 300
SETTLED = ("a", "b", "c")
NEWCOMER = "d"
HEARTBEAT_MS = 100
REST_S = 1.0
PATIENCE_S = 120.0
_POLL_S = 0.02

OURS = Kind("ours", lambda: [sys.executable, "-m", "benchmarks.our_member"], (COOPERATIVE,))

_group_numbers = itertools.count()


# ---- a fourth joins


def measure_rebalance(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield a row of seconds; the peer is Java's consumer."""
    with broker.create_topic(PARTITIONS) as topic:
        fill_each(broker, topic, PARTITIONS)
        kinds = [OURS]
        try:
            # The tests' helper skips where there is no Java or no Maven.
            JAVA_2_8.command()
        except pytest.skip.Exception:
            pass  # there is no peer: our figure stands alone
        else:
            kinds.append(JAVA_2_8)
        contestants = [partial(join_fourth, broker, topic, PARTITIONS, kind) for kind in kinds]
        (seconds,) = alternate(contestants, rounds)
    title = f"a 4th joins 3 members, {PARTITIONS} partitions, cooperative · Java's"
    yield Row(title, "s", at_most(0.5), seconds)


def fill_each(broker: Broker, topic: str, partitions: int) -> None:
    """Produce a message to each partition."""

    async def fill() -> None:
        async with Producer({"bootstrap.servers": broker.bootstrap, "acks": "1"}) as producer:
            for partition in range(partitions):
                await producer.send(topic, b"a message", partition=partition)
            await producer.flush()

    asyncio.run(fill())


def join_fourth(
    broker: Broker, topic: str, partitions: int, kind: Kind, _: float = 0
) -> tuple[float]:
    """Start three members and, when they are at rest, a fourth; return its seconds."""
    group = f"fourth-{next(_group_numbers)}"
    members: list[DrivenMember] = []
    with tempfile.TemporaryDirectory() as directory:

        def start(name: str) -> DrivenMember:
            arguments = {
                "--bootstrap": broker.bootstrap,
                "--group": group,
                "--topics": topic,
                "--strategy": COOPERATIVE,
                "--client-id": name,
                "--heartbeat-ms": str(HEARTBEAT_MS),
                "--commits": "false",
            }
            members.append(DrivenMember.start(kind, name, Path(directory), arguments))
            return members[-1]

        try:
            for name in SETTLED:
                start(name)
            _await_shares(members, partitions // len(members))
            time.sleep(REST_S)

            newcomer = start(NEWCOMER)
            share = partitions // len(members)
            _await_shares(members, share)
            _until(lambda: len(_received_ms(newcomer)) == share, members)
            ended_ms = max(_received_ms(newcomer).values())
        finally:
            for member in members:
                member.kill()
    return ((ended_ms - _joined_ms(broker, group)) / 1000,)


def _received_ms(member: DrivenMember) -> dict[int, int]:
    """Return when the member was given the message of each partition."""
    return {message.partition.partition: message.at_ms for message in member.messages}


def _await_shares(members: list[DrivenMember], share: int) -> None:
    _until(lambda: all(len(member.owned) == share for member in members), members)


def _until(holds: Callable[[], bool], members: list[DrivenMember]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > ends:
            raise LoadError("\n".join(member.describe() for member in members))
        time.sleep(_POLL_S)


def _joined_ms(broker: Broker, group: str) -> int:
    """Return when the newcomer began the rebalance, as the coordinator's events have it."""
    command = command_line(
        "kgroup", "events", group, "--bootstrap-server", broker.bootstrap, "-o", "json"
    )
    ends = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends:
        printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for event in json.loads(printed.stdout)["items"]:
            if event["trigger"] == "member_joined" and event["client_id"] == NEWCOMER:
                started_ms: int = event["started_ms"]
                return started_ms
        time.sleep(_POLL_S)
    raise LoadError(f"there is no event of {NEWCOMER} in {group}")


# ---- streams


def measure_streams(
    broker: Broker, rounds: Rounds, topic_bytes: int = TOPIC_BYTES
) -> Iterator[Row]:
    """Yield a row of records a second; the second column has the group in ZooKeeper."""
    with broker.create_topic() as topic:
        records = fill(broker, topic, topic_bytes)
        contestants = [
            rate(partial(consume_streams, membership=membership), broker, topic, records)
            for membership in ("coordinator", "zookeeper")
        ]
        (figures,) = alternate(contestants, rounds)
    yield Row(
        "streams, membership=coordinator · membership=zookeeper",
        "records/s",
        at_least(0.97),
        figures,
        beside=Beside.OURSELVES,
    )
