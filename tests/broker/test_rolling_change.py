"""A running cluster is secured as docs/security.md says: by rolling restarts, with clients on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Self

import attrs

from broker.kbroker.local_cluster import HOST, claim_ports
from broker.kbroker.over_zookeeper import OverZooKeeper
from broker.server import Broker
from clients.admin import Admin, NewTopic, ScramUpsertion
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from protocol.acls import AclBinding, AclEntry, Operation, ResourcePattern, ResourceType
from protocol.sasl.exchange import SCRAM_SHA_512
from tests.stage.broker import Site
from tests.stage.certificates import Authority
from tests.stage.rolling_change import (
    AUTHORIZER,
    INTER_BROKER,
    ONLY_SECURE,
    PASSWORDS,
    SECOND_LISTENER,
    authority_at,
    security_of_alice,
    settings_here,
)
from tests.stage.waiting import until
from zk.znodes import PartitionState

IDS = (1, 2, 3)
TOPIC, GROUP, PARTITIONS = "orders", "billing", 3
OFFSETS = "__consumer_offsets"
MORE = 50
PAUSE_S = 0.005
"""After each record: the brokers of this process have other work too."""


@attrs.define(eq=False)
class Cluster:
    """Three brokers in this process, that are restarted with the settings of a step."""

    site: Site
    authority: Authority
    plain: list[int]
    secure: list[int]
    settings: dict[str, str] = attrs.field(factory=dict)
    running: dict[int, Broker] = attrs.field(factory=dict)

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, directory: Path) -> AsyncIterator[Self]:
        ports = claim_ports(0, 2 * len(IDS))
        cluster = cls(Site(directory), authority_at(directory), ports[::2], ports[1::2])
        cluster.settings = {
            "listeners": "PLAINTEXT://kafka1.example.com:9092",
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "controlled.shutdown.retry.backoff.ms": "100",
        }
        try:
            await asyncio.gather(*map(cluster.start, IDS))
            yield cluster
        finally:
            await asyncio.gather(*(broker.close() for broker in cluster.running.values()))

    async def start(self, broker_id: int) -> None:
        number = broker_id - IDS[0]
        ports = self.plain[number], self.secure[number]
        settings = settings_here(self.settings, *ports, self.authority)
        broker = self.running[broker_id] = self.site.broker(broker_id, **settings)
        await broker.start()

    async def roll(self, step: Mapping[str, str]) -> None:
        """Restart each broker with the settings of a step, when the one before is in sync."""
        self.settings |= step
        for broker_id in IDS:
            await self.running[broker_id].close()
            await self.start(broker_id)
            await until(self.is_in_sync, f"all replicas are in sync after broker {broker_id}")

    async def allow_alice(self) -> None:
        """Add her ACLs in ZooKeeper, as no broker does so yet."""
        session = self.site.zookeeper.session()
        await session.start()
        verdicts = await OverZooKeeper(session, 5000).create_acls(
            [
                AclBinding(ResourcePattern(kind, name), AclEntry("User:alice", operation))
                for kind, name, operation in (
                    (ResourceType.TOPIC, TOPIC, Operation.WRITE),
                    (ResourceType.TOPIC, TOPIC, Operation.READ),
                    (ResourceType.GROUP, GROUP, Operation.READ),
                )
            ]
        )
        assert set(verdicts.values()) == {None}

    def is_in_sync(self) -> bool:
        paths = [PartitionState.path(TOPIC, number) for number in range(PARTITIONS)]
        tree = self.site.zookeeper.tree
        states = [tree[path].data for path in (*paths, PartitionState.path(OFFSETS, 0))]
        return all(self.site.node(broker_id) for broker_id in IDS) and all(
            len(PartitionState.decode(state).isr) == len(IDS) for state in states if state
        )

    def client(self, *, is_secure: bool) -> dict[str, str]:
        if not is_secure:
            return {"bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self.plain)}
        bootstrap = ",".join(f"{HOST}:{port}" for port in self.secure)
        return {"bootstrap.servers": bootstrap, **security_of_alice(self.authority)}


@attrs.define(eq=False)
class Clients:
    """A producer, and a member of the group, that go on until the block ends."""

    name: str
    settings: dict[str, str]
    consumed: list[str]
    """The values that any member was given."""
    acknowledged: list[str] = attrs.field(factory=list)
    own: int = 0
    """The number of messages that this member was given."""
    _is_stopping: bool = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        # An error of either ends the block.
        async with asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(self._produce())
            consuming = tasks.create_task(self._consume())
            yield self
            self._is_stopping = True
            await producing
            consuming.cancel()

    async def go_on(self) -> None:
        """Return when this producer and this member have done more."""
        acknowledged, own = len(self.acknowledged), self.own
        await until(
            lambda: len(self.acknowledged) >= acknowledged + MORE and self.own > own,
            f"clients {self.name} go on",
        )

    async def _produce(self) -> None:
        async with Producer(self.settings | {"acks": "all", "linger.ms": "0"}) as producer:
            for number in itertools.count():
                if self._is_stopping:
                    return
                value = f"{self.name} {number}"
                await producer.send_and_wait(TOPIC, value.encode(), partition=number % PARTITIONS)
                self.acknowledged.append(value)
                await asyncio.sleep(PAUSE_S)

    async def _consume(self) -> None:
        member = {
            "group.id": GROUP,
            "membership": "coordinator",
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": "200",
        }
        async with ConsumerConnector(self.settings | member) as connector:
            (stream,) = (await connector.create_message_streams({TOPIC: 1}))[TOPIC]
            async for message in stream:
                self.consumed.append(message.value.decode())
                self.own += 1


async def test_cluster_is_secured_step_by_step_while_clients_go_on(tmp_path: Path) -> None:
    consumed: list[str] = []

    async with Cluster.started(tmp_path) as cluster:
        async with Admin(cluster.client(is_secure=False)) as admin:

            async def knows_all() -> bool:
                return len((await admin.describe_cluster()).brokers) == len(IDS)

            await until(knows_all, "all brokers are known")
            users = [ScramUpsertion(user, SCRAM_SHA_512, PASSWORDS[user]) for user in PASSWORDS]
            assert set((await admin.alter_user_scram_credentials(users)).values()) == {None}
            created = await admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(IDS))])
            assert created == {TOPIC: None}

        plain = Clients("plain", cluster.client(is_secure=False), consumed)
        secure = Clients("secure", cluster.client(is_secure=True), consumed)
        async with contextlib.AsyncExitStack() as ends:
            async with plain.running():
                await plain.go_on()
                await cluster.roll(SECOND_LISTENER)
                await plain.go_on()

                # Clients of both kinds are in one group, and reach all brokers.
                await ends.enter_async_context(secure.running())
                await secure.go_on()
                await cluster.roll(INTER_BROKER)
                await plain.go_on()
                await secure.go_on()

            # A coordinator that moves now would wait for the member that has left.
            await secure.go_on()
            await all_is_consumed(plain, secure)
            await cluster.roll(ONLY_SECURE)
            await secure.go_on()
            await cluster.allow_alice()
            await cluster.roll(AUTHORIZER)
            await secure.go_on()
            await all_is_consumed(plain, secure)


async def all_is_consumed(*clients: Clients) -> None:
    """Return when the group was given all that has been acknowledged by now."""
    acknowledged = {value for each in clients for value in each.acknowledged}
    await until(lambda: acknowledged <= set(clients[0].consumed), "all is consumed")
