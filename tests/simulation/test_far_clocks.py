"""Clocks that are years apart, or go back by years, lose nothing and double nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from clients.admin import LATEST_TIME, Admin
from clients.group_metadata import ConsumerGroupMetadata
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from kgroup.testing.simulation import Cluster, Faults, simulate
from kgroup.testing.waiting import until
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
RECORDS = 30
TRANSACTIONS = 6
MEMBERSHIPS: Mapping[str, Mapping[str, Any]] = {
    "coordinator": {"membership": "coordinator", "auto.offset.reset": "earliest"},
    "zookeeper": {
        "zookeeper.connect": "zk:2181",
        "auto.offset.reset": "smallest",
        "offsets.storage": "kafka",
    },
}

Jump = tuple[float, Mapping[str, int]]
"""Seconds to wait, then by how much the clocks of hosts and clients jump; 0: it is restarted."""


@attrs.define(eq=False)
class Work:
    """A producer, one with transactions, and a consumer, on machines of their own."""

    cluster: Cluster
    membership: str
    sent: set[int] = attrs.field(factory=set)
    read: list[int] = attrs.field(factory=list)
    committed: int = 0

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.cluster.bootstrap,
            "request.timeout.ms": 8_000,
            "default.api.timeout.ms": 30_000,
            **more,
        }

    async def produce(self) -> None:
        settings = self.settings(**{"enable.idempotence": True, "delivery.timeout.ms": 60_000})
        async with Producer(settings) as producer:
            for number in range(RECORDS):
                await producer.send_and_wait("t", b"%d" % number, partition=number % 3)
                self.sent.add(number)
                await asyncio.sleep(1)

    async def transact(self) -> None:
        settings = self.settings(**{"transactional.id": "x", "delivery.timeout.ms": 60_000})
        async with Producer(settings) as producer:
            for number in range(TRANSACTIONS):
                async with producer.transaction():
                    await producer.send("x", b"%d" % number, partition=0)
                    await producer.send_offsets_to_transaction(
                        {PARTITIONS[0]: OffsetAndMetadata(number)}, ConsumerGroupMetadata("xg")
                    )
                self.committed += 1
                await asyncio.sleep(4)

    async def consume(self) -> None:
        settings = self.settings(**{"group.id": "g", "auto.commit.interval.ms": 1_000})
        settings |= MEMBERSHIPS[self.membership]
        in_zookeeper = self.membership == "zookeeper"
        zk = await self.cluster.open_session() if in_zookeeper else None
        connector = ConsumerConnector(settings, zk=zk)
        (stream,) = (await connector.create_message_streams({"t": 1}))["t"]
        async for message in stream:
            self.read.append(int(message.value))

    async def ends(self) -> tuple[list[int], list[int]]:
        async with Admin(self.settings()) as admin:
            logs = await admin.list_offsets(dict.fromkeys(PARTITIONS, LATEST_TIME))
            offsets = await admin.group_offsets("g")
        return (
            [logs[p].offset for p in PARTITIONS],
            [offsets[p].offset if p in offsets else 0 for p in PARTITIONS],
        )


async def scene(
    cluster: Cluster, membership: str, skews: Mapping[str, int], jumps: list[Jump]
) -> None:
    work = Work(cluster, membership)
    clients = {name: cluster.client(name) for name in ("producer", "transactions", "consumer")}

    def shift(by: Mapping[str, int]) -> None:
        for name, by_ms in by.items():
            process = clients.get(name) or _node(cluster, name).process
            process.skew_ms += by_ms
            cluster.skews_ms[name] = process.skew_ms

    shift(skews)
    clients["producer"].spawn(work.produce(), "produce")
    clients["transactions"].spawn(work.transact(), "transact")
    clients["consumer"].spawn(work.consume(), "consume")

    for pause_s, by in jumps:
        await asyncio.sleep(pause_s)
        shift(by)
        for name in [name for name, by_ms in by.items() if by_ms == 0]:
            _node(cluster, name).stop()
            await asyncio.sleep(1)
            _node(cluster, name).start()

    async def progress() -> tuple[int, int, int] | None:
        done = (len(work.sent), len(set(work.read)), work.committed)
        return done if done == (RECORDS, RECORDS, TRANSACTIONS) else None

    await until(progress, "all is sent, read and committed", 120.0, pause_s=1.0)

    async def is_committed() -> bool:
        ends, offsets = await clients["consumer"].run(work.ends)
        return ends == offsets

    await until(is_committed, "the group is at the ends", pause_s=1.0)
    assert sorted(work.read) == list(range(RECORDS)), "each record is read, and once"


def _node(cluster: Cluster, host: str) -> Any:
    return next(node for node in cluster.nodes if node.host == host)


CASES: Mapping[str, tuple[Mapping[str, int], list[Jump]]] = {
    "brokers years apart, restarted one by one": (
        {"b1": 10 * YEAR_MS, "b2": -20 * YEAR_MS, "b3": 5 * 3_600_000},
        [(12, {"b1": 0}), (10, {"b2": 0}), (10, {"b3": 0})],
    ),
    "clients years apart": (
        {"producer": 30 * YEAR_MS, "transactions": -30 * YEAR_MS, "consumer": 12 * 3_600_000},
        [],
    ),
    "all clocks go back": (
        {},
        [
            (10, {"b1": -YEAR_MS, "producer": -YEAR_MS}),
            (4, {"b2": -3 * DAY_MS, "consumer": -YEAR_MS}),
            (4, {"b3": -YEAR_MS, "transactions": -YEAR_MS}),
            (4, {"b1": 0}),
        ],
    ),
    "brokers' clocks go forth and back": (
        {},
        [
            (8, {"b1": YEAR_MS}),
            (4, {"b2": YEAR_MS, "b3": YEAR_MS}),
            (8, {"b1": -YEAR_MS, "b2": -YEAR_MS, "b3": -YEAR_MS}),
            (4, {"b2": 0}),
        ],
    ),
}


@pytest.mark.parametrize("membership", MEMBERSHIPS)
@pytest.mark.parametrize("case", CASES)
def test_nothing_is_lost_or_doubled_however_far_clocks_are_off(case: str, membership: str) -> None:
    skews, jumps = CASES[case]

    async def story(cluster: Cluster, faults: Faults) -> None:
        await scene(cluster, membership, skews, jumps)

    simulate(story, seed=7, topics={"t": 3, "x": 1}, settings={"log.retention.ms": "-1"})
