"""The cluster on which costs are counted: simulated brokers, a client, things by the number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from clients.admin import Admin, NewTopic
from clients.errors import KgroupError
from clients.transport.connection import Connection
from kgroup.testing.simulation import Cluster, simulate
from kgroup.testing.simulation.node import PORT
from kgroup.testing.waiting import until
from offsets.requests import commit_request
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.records.builder import encode_batch
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.scale.cost import Cost, counting

TOPIC = "p"
"""The topic that has all partitions, where partitions are the size."""
GROUP = "g"
TIMEOUT_MS = 600_000
SETTINGS = {
    "log.flush.interval.messages": "9223372036854775807",
    "num.partitions": "1",
    "log.cleaner.enable": "false",
    "log.segment.bytes": "1048576",
    "offsets.topic.segment.bytes": "104857600",
}
CLIENT_SETTINGS: dict[str, Any] = {
    "request.timeout.ms": TIMEOUT_MS,
    "default.api.timeout.ms": TIMEOUT_MS,
}


@attrs.define(eq=False)
class Stage:
    """A cluster with `size` of what a row works on."""

    cluster: Cluster
    size: int
    connections: dict[str, Connection] = attrs.field(factory=dict)
    kept: list[Any] = attrs.field(factory=list)
    """What a row prepares for its work."""

    @property
    def bootstrap(self) -> dict[str, Any]:
        """Return the settings of a client."""
        return CLIENT_SETTINGS | {"bootstrap.servers": self.cluster.bootstrap}

    @property
    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of the one topic."""
        return [TopicPartition(TOPIC, number) for number in range(self.size)]

    @property
    def topics(self) -> list[str]:
        """Return the names of the many topics, of one partition each."""
        return [f"t-{number}" for number in range(self.size)]

    @property
    def groups(self) -> list[str]:
        """Return the ids of the many groups."""
        return [f"g-{number}" for number in range(self.size)]

    async def ask(
        self, request: Any, host: str = "b1", purpose: str = "", version: int | None = None
    ) -> Any:
        """Ask a broker."""
        connection = self.connections.get(host + purpose)
        if connection is None or connection.closed:
            connection = await Connection.open(host, PORT, request_timeout_ms=TIMEOUT_MS)
            self.connections[host + purpose] = connection
        return await connection.call(request, version=version)

    # ---- things by the number

    async def create_partitions(self) -> None:
        """Create the one topic, with a replica of each partition on all brokers, led by b1."""
        replicas = [node.broker_id for node in self.cluster.nodes]
        await self._create(
            [
                CreateTopicsRequestTopic(
                    name=TOPIC,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[
                        CreateTopicsRequestAssignment(partition_index=number, broker_ids=replicas)
                        for number in range(self.size)
                    ],
                    configs=[],
                )
            ]
        )
        await self.until_led()

    async def until_led(self) -> None:
        """Wait until all brokers that run know the leaders of the one topic's partitions."""
        await until(
            self._are_all_led, "all partitions are led", pause_s=0.5, retry_on=(KgroupError,)
        )

    async def create_topic(self, name: str, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic of one partition."""
        async with Admin(self.bootstrap) as admin:
            results = await admin.create_topics([NewTopic(name, configs=configs or {})])
        assert results[name] is None, results

    async def create_topics(self) -> None:
        """Create the many topics."""
        await self._create([new_topic(name) for name in self.topics])

    async def _create(self, topics: Sequence[CreateTopicsRequestTopic]) -> None:
        request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)
        response = await self.ask(request, await self.controller())
        failed = [topic for topic in response.topics if topic.error_code]
        assert not failed, failed[0]

    async def controller(self) -> str:
        """Return the controller's host."""
        async with Admin(self.bootstrap) as admin:
            return f"b{(await admin.describe_cluster()).controller_id}"

    async def _are_all_led(self) -> bool:
        running = {node.broker_id for node in self.cluster.nodes if node.running}
        for node in self.cluster.nodes:
            if not node.running:
                continue
            request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
            partitions = (await self.ask(request, node.host)).topics[0].partitions
            led = [p for p in partitions if p.leader_id in running]
            if len(led) < self.size or any(not running <= set(p.isr_nodes) for p in led):
                return False
        return True

    async def produce(
        self, partitions: Iterable[TopicPartition], acks: int = -1, value: bytes = b"value"
    ) -> None:
        """Write a record to each partition, in one request."""
        request = produce_request(partitions, acks, value)
        response = await self.ask(request, purpose="write")
        codes = {p.error_code for topic in response.responses for p in topic.partition_responses}
        assert codes == {0}, codes

    async def commit(
        self, group_id: str, partitions: Iterable[TopicPartition], offset: int = 1
    ) -> None:
        """Commit an offset of each partition, in one request."""
        offsets = dict.fromkeys(partitions, OffsetAndMetadata(offset))
        response = await self.ask(commit_request(group_id, offsets))
        codes = {part.error_code for topic in response.topics for part in topic.partitions}
        assert codes == {0}, codes


def new_topic(name: str) -> CreateTopicsRequestTopic:
    """Return a topic of one partition, with a replica on each broker that it finds."""
    return CreateTopicsRequestTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )


def produce_request(
    partitions: Iterable[TopicPartition], acks: int = -1, value: bytes = b"value"
) -> ProduceRequest:
    """Return a request that writes a record to each partition."""
    batch = encode_batch([(1, None, value, ())])
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return ProduceRequest(
        acks=acks,
        timeout_ms=TIMEOUT_MS,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[
                    ProduceRequestPartition(index=number, records=batch) for number in indexes
                ],
            )
            for topic, indexes in numbers.items()
        ],
    )


Act = Callable[[Stage], Awaitable[Any]]


@attrs.frozen
class Row:
    """A piece of work on `size` of something.

    - `prepare`: makes the things, and is not counted.
    - `act`: is counted.
    - `turn_bound`: the most calls of one turn at any size; None where a response must be whole.
    - `sizes`: those that `make scale` tries; `small`: those that `make test` does.
    - `of_each`: count what each thing costs, where every one of them has to look at all others.
    """

    name: str
    act: Act
    prepare: Act
    brokers: int = 1
    turn_bound: int | None = None
    sizes: Sequence[int] = (100, 1_000, 10_000)
    small: Sequence[int] = (50, 500)
    of_each: bool = False

    def measure(self, size: int, seed: int = 1) -> Cost:
        """Do the work of a row on so many things, and return what it cost."""

        async def scene(cluster: Cluster, faults: object) -> Cost:
            stage = Stage(cluster, size)
            cluster.world.most_turns = MOST_TURNS
            client = cluster.client("scale")

            async def work() -> Cost:
                await self.prepare(stage)
                # What the preparation has set off comes to rest.
                await asyncio.sleep(REST_S)
                before = await idle_cost(cluster)
                began_s = cluster.world.now
                with counting(cluster) as counter:
                    # What this turn does would not count.
                    await asyncio.sleep(0)
                    await self.act(stage)
                    await asyncio.sleep(REST_S)
                lasted_s = cluster.world.now - began_s
                after = await idle_cost(cluster)

                # There may be less to look after than before, or more.
                idle = before.mean(after).times(lasted_s / IDLE_S)
                cost = counter.cost().less(idle)
                return cost.of_each(size) if self.of_each else cost

            return await client.run(work)

        return simulate(scene, seed=seed, brokers=self.brokers, settings=SETTINGS)


async def idle_cost(cluster: Cluster) -> Cost:
    """Return what the cluster does by itself in IDLE_S."""
    with counting(cluster) as idle:
        await asyncio.sleep(IDLE_S)
    return idle.cost()


IDLE_S = 20.0
"""Virtual seconds in which a cluster at rest does what it does by itself."""
MOST_TURNS = 100_000_000
"""Ten thousand groups are reset in some millions."""
REST_S = 2.0
"""Virtual seconds for which things come to rest: some heartbeats, fetches and checks of timers."""
