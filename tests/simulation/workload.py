"""What the clients of a story do, each a process of its own, all with the product's own clients."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import attrs

from clients.admin import Admin
from clients.cluster import Cluster as ClientCluster
from clients.errors import KgroupError
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from clients.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from kgroup.testing.simulation.cluster import CLIENT
from offsets.requests import (
    commit_request,
    commit_results,
    fetch_offsets_request,
    fetch_results,
)
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kgroup.testing.simulation.node import Node
    from tests.simulation.cluster import Cluster

TOPIC = "t"
FAILURES = (KgroupError, ApiError, OSError)
RECORD_EVERY_S = 0.08
LARGE = 0.01  # chance of a record of this many bytes
LARGE_BYTES = 50_000


@attrs.define(eq=False)
class Writer:
    """Writes numbered records to every partition with acks=all, and remembers what it was told.

    An idempotent one has requests for several partitions under way.
    """

    cluster: Cluster
    name: str
    rng: Random
    is_idempotent: bool
    stopped: bool = False
    _numbers: Counter[int] = attrs.field(factory=Counter)

    async def live(self) -> None:
        """Write until stopped, and until all is acknowledged or given up."""
        settings = CLIENT | {
            "bootstrap.servers": self.cluster.draw_bootstrap(self.rng),
            "acks": "all",
            "linger.ms": 5,
            "delivery.timeout.ms": 15_000,
            "max.block.ms": 8000,
            "enable.idempotence": self.is_idempotent,
            "max.in.flight.requests.per.connection": 5 if self.is_idempotent else 1,
        }
        async with Producer(settings) as producer:
            while not self.stopped:
                await asyncio.sleep(self.rng.expovariate(1 / RECORD_EVERY_S))
                await self._write(producer)

    async def _write(self, producer: Producer) -> None:
        invariants, story = self.cluster.invariants, self.cluster.world.story
        partition = self.rng.randrange(self.cluster.partitions)
        number = self._numbers[partition]
        self._numbers[partition] += 1
        padding = LARGE_BYTES if self.rng.random() < LARGE else self.rng.randrange(200)
        value = f"{self.name}/{partition}/{number}/".encode() + b"." * padding
        invariants.sent.add(value)
        try:
            delivery = await producer.send(TOPIC, value, partition=partition)
        except FAILURES as error:
            story.tell(self.name, f"cannot send {number} to {partition}: {error}")
            story.bite("send refused")
            return

        def delivered(delivery: asyncio.Future[Any]) -> None:
            error = delivery.exception()
            if error is None:
                offset = delivery.result().offset
                invariants.acknowledged(self.name, number, partition, offset, value)
            else:
                story.bite("record failed")
                unless_told = f"does not know what became of records in {partition}: {error}"
                story.tell_once(self.name, unless_told)

        delivery.add_done_callback(delivered)


@attrs.define(eq=False)
class Reader:
    """Reads a partition from its beginning on, going after its leader."""

    cluster: Cluster
    name: str
    partition: int
    position: int = 0

    async def live(self) -> None:
        """Read for ever."""
        story = self.cluster.world.story
        settings = CLIENT | {"bootstrap.servers": self.cluster.bootstrap}
        consumer: SimpleConsumer | None = None
        while True:
            try:
                if consumer is None:
                    consumer = await SimpleConsumer.for_leader(settings, TOPIC, self.partition)
                await self._read(consumer)
            except FAILURES as error:
                story.tell(self.name, f"cannot read {self.partition}: {error}")
                story.bite("read failed")
                if consumer is not None:
                    await consumer.close()
                    consumer = None
                await asyncio.sleep(0.2)

    async def _read(self, consumer: SimpleConsumer) -> None:
        invariants = self.cluster.invariants
        request = FetchRequest(TOPIC, self.partition, self.position)
        fetched = await consumer.fetch(request, max_wait_ms=500, min_bytes=1)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE and self.cluster.loss_allowed:
            self.position = 0
            return
        fetched.raise_for_error()
        if fetched.high_watermark >= 0:  # or the leader, which is new, does not tell any
            invariants.watermark(self.name, self.partition, fetched.high_watermark)
        for row in fetched.rows:
            invariants.read(self.name, self.partition, row[0], row[3] or b"")
        self.position = max(self.position, fetched.next_offset)


@attrs.define(eq=False)
class Committer:
    """Commits ever larger offsets of a group at its coordinator, and asks for them again."""

    cluster: Cluster
    name: str
    rng: Random

    async def live(self) -> None:
        """Commit for ever."""
        story = self.cluster.world.story
        bootstrap = self.cluster.draw_bootstrap(self.rng)
        client = ClientCluster(bootstrap.split(","), config=self.cluster.client_config(bootstrap))
        position = 0
        while True:
            await asyncio.sleep(self.rng.uniform(0.05, 0.5))
            position += 1
            partition = TopicPartition(TOPIC, position % self.cluster.partitions)
            try:
                await self._commit(client, partition, position)
                if self.rng.random() < 0.3:
                    await self._look(client, partition)
            except FAILURES as error:
                story.tell(self.name, f"cannot commit: {error}")
                story.bite("commit failed")
                client.forget_coordinator(self.name)

    async def _commit(self, client: ClientCluster, partition: TopicPartition, offset: int) -> None:
        request = commit_request(self.name, {partition: OffsetAndMetadata(offset)})
        code = commit_results(await client.call_coordinator(self.name, request))[partition]
        if code is not ErrorCode.NONE:
            raise ApiError(code, str(partition))
        self.cluster.invariants.committed(self.name, partition.partition, offset)

    async def _look(self, client: ClientCluster, partition: TopicPartition) -> None:
        response = await client.call_coordinator(
            self.name, fetch_offsets_request(self.name, [partition])
        )
        if response.error_code:
            raise ApiError(ErrorCode.of(response.error_code), self.name)
        found = fetch_results(response)[partition]
        if found.error is not ErrorCode.NONE:
            raise ApiError(found.error, str(partition))
        self.cluster.invariants.found_committed(self.name, partition.partition, found.offset)


@attrs.define(eq=False)
class Member:
    """A member of a group in ZooKeeper."""

    cluster: Cluster
    name: str
    storage: str
    consumed: set[tuple[int, int]]
    """(partition, offset) of what the group was given; all members share it."""

    async def live(self) -> None:
        """Consume for ever."""
        process = self.cluster.world.current
        assert process is not None
        session = self.cluster.zookeeper.session(process, 6000)
        await session.start()
        settings = {
            "group.id": "g",
            "consumer.id": self.name,
            "zookeeper.connect": "zk:2181",
            "auto.offset.reset": "smallest",
            "auto.commit.interval.ms": 1500,
            "offsets.storage": self.storage,
            "socket.timeout.ms": 5000,
            "rebalance.backoff.ms": 300,
        }
        while True:
            connector = ConsumerConnector(settings, zk=session)
            try:
                streams = await connector.create_message_streams({TOPIC: 2})
                break
            except KgroupError as error:
                self.cluster.world.story.tell(self.name, f"cannot join: {error}")
                await connector.shutdown()
                await asyncio.sleep(1.0)
        await asyncio.gather(*(self._consume(stream) for stream in streams[TOPIC]))

    async def _consume(self, stream: Any) -> None:
        async for message in stream:
            self.cluster.invariants.read(
                self.name, message.partition, message.offset, message.value
            )
            self.consumed.add((message.partition, message.offset))


@attrs.define(eq=False)
class Onlooker:
    """Asks one broker, again and again, who leads."""

    cluster: Cluster
    node: Node
    rng: Random

    async def live(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(self.rng.uniform(1.0, 3.0))
            with suppress(*FAILURES):
                self.cluster.invariants.told(self.node.host, await leaders_told(self.node))


async def leaders_told(node: Node) -> dict[int, tuple[int, int]]:
    """(leader, leader epoch) of each partition, as one broker tells it."""
    async with Admin(node.address, request_timeout_ms=1000, default_api_timeout_ms=900) as admin:
        found = await admin.describe_topics([TOPIC])
    return {number: (p.leader, p.leader_epoch) for number, p in found[TOPIC].partitions.items()}


async def whole_log(cluster: Cluster) -> dict[tuple[int, int], bytes]:
    """Every record there is, by (partition, offset)."""
    settings = CLIENT | {"bootstrap.servers": cluster.bootstrap}
    found: dict[tuple[int, int], bytes] = {}
    for partition in range(cluster.partitions):
        consumer = await SimpleConsumer.for_leader(settings, TOPIC, partition)
        async with consumer:
            at = await consumer.earliest_or_latest_offset(TOPIC, partition, EARLIEST_TIME)
            while True:
                fetched = await consumer.fetch(FetchRequest(TOPIC, partition, at))
                fetched.raise_for_error()
                for row in fetched.rows:
                    found[partition, row[0]] = row[3] or b""
                if fetched.next_offset > at:
                    at = fetched.next_offset
                # Nothing is no end: a new leader's high watermark may be lower than the last one's,
                # and who asks for the latest offset hears so (KIP-207).
                elif at >= await consumer.earliest_or_latest_offset(TOPIC, partition, LATEST_TIME):
                    break
    return found
