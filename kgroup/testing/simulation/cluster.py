"""Brokers, a ZooKeeper and clients in a world of their own, made from a seed.

The brokers are the product's, whole and unchanged: they are given a session, a clock, a disk and a
port of this world, and know no difference. Who finds that its broker has stopped by itself starts
it again, as an operator's supervisor does.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

import attrs

from broker.server import Broker
from clients.admin import Admin, NewTopic
from clients.cluster import Cluster as ClientCluster
from clients.config import ClusterConfig
from core_log.memory_directory import Disk, MemoryDirectory
from kgroup.testing.simulation.network import Network
from kgroup.testing.simulation.node import DIRECTORY, SESSION_TIMEOUT_MS, Node
from kgroup.testing.simulation.story import Story
from kgroup.testing.simulation.world import Process, World
from kgroup.testing.simulation.zookeeper import HOST as ZK_HOST
from kgroup.testing.simulation.zookeeper import SimSession, SimZooKeeper
from kgroup.testing.waiting import until
from offsets.requests import fetch_offsets_request
from protocol.settings import load
from protocol.topic_partition import TopicPartition
from zk.topic_znodes import PartitionState

MOST_REPLICAS = 3
"""Of every topic, the offsets topic included; fewer where there are fewer brokers."""
OFFSETS_PARTITIONS = 3
LAG_TIMES_MS = (1500, 5000)
"""replica.lag.time.max.ms, one in the whole story: ISRs change often, or seldom."""
RESTART_S = (0.5, 3.0)
ASK_AGAIN_S = 0.1

SETTINGS = {
    "zookeeper.connect": f"{ZK_HOST}:2181",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "log.dirs": DIRECTORY,
    "num.io.threads": "1",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.load.buffer.size": "512",
    "group.initial.rebalance.delay.ms": "500",
    "controller.socket.timeout.ms": "5000",
    "log.retention.ms": "-1",
    "log.segment.bytes": "65536",
    "offsets.topic.segment.bytes": "1500",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.flush.offset.checkpoint.interval.ms": "7000",
}
"""Small limits, so that much happens in a minute."""
EVERY_RECORD_FLUSHED = {"log.flush.interval.messages": "1"}

CLIENT = {
    "request.timeout.ms": 4000,
    "default.api.timeout.ms": 8000,
    "retry.backoff.ms": 100,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1000,
    "socket.connection.setup.timeout.ms": 3000,
}
"""Settings of a client that gives up within seconds, as these brokers come back within seconds."""


@attrs.define(eq=False)
class Client:
    """The machine of one client: its processes come and go, and each begins with `main`."""

    cluster: Cluster
    name: str
    main: Callable[[], Coroutine[Any, Any, Any]]
    process: Process

    @property
    def running(self) -> bool:
        """Say whether there is a process, well or not."""
        return self.process.alive

    def start(self) -> None:
        """Start a process, and `main` in it. An exception that leaves `main` ends the story."""
        cluster = self.cluster
        skew_ms = self.process.skew_ms
        if self.process in cluster.clients:
            cluster.clients.remove(self.process)

        self.process = cluster.client(self.name)
        self.process.skew_ms = skew_ms
        self.process.spawn(self.main(), self.name)
        cluster.story.tell(self.name, "starts")

    def kill(self) -> None:
        """Kill the process: no `finally` runs, and its connections are reset."""
        self.cluster.network.stop(self.process, silent=False)
        self.cluster.zookeeper.disconnect(self.process)
        self.process.kill()


class Cluster:
    """Brokers, a ZooKeeper and clients: everything that a scene or a fault needs to know of them.

    What is not given is drawn from the seed: `settings` are those of all brokers, beside SETTINGS.
    `loss_allowed` says that a power failure may have taken acknowledged records; that happens only
    where not every record is flushed.
    """

    def __init__(
        self, seed: int, *, brokers: int = 3, settings: Mapping[str, str] | None = None
    ) -> None:
        self.world = world = World(seed)
        self.story: Story = world.story
        self.rng = Random(world.rng.random())
        world.network = self.network = Network(world)
        self.zookeeper = SimZooKeeper(world)
        self.skews_ms: dict[str, int] = {}
        self.replication = min(brokers, MOST_REPLICAS)

        drawn = EVERY_RECORD_FLUSHED if self.rng.random() < 0.5 else {}
        lag_time_ms = self.rng.choice(LAG_TIMES_MS)
        self.settings = {
            **SETTINGS,
            "default.replication.factor": str(self.replication),
            "offsets.topic.replication.factor": str(self.replication),
            "transaction.state.log.replication.factor": str(self.replication),
            "transaction.state.log.min.isr": str(min(self.replication, 2)),
            "min.insync.replicas": str(min(self.replication, 2)),
            "replica.lag.time.max.ms": str(lag_time_ms),
            **drawn,
            **(settings or {}),
        }
        self.every_record_flushed = EVERY_RECORD_FLUSHED.items() <= self.settings.items()
        self.may_lose_power = self.every_record_flushed or self.rng.random() < 0.5
        self.loss_allowed = False

        self.nodes = [self._node(broker_id) for broker_id in range(1, brokers + 1)]
        self.clients: list[Process] = []
        self.restarted: list[Client] = []
        self.broker_made: Callable[[Node, Broker], None] = lambda node, broker: None
        """Called for each broker before it starts."""
        world.at_end.append(self._let_go)

    def _let_go(self) -> None:
        self.zookeeper.let_go()
        self.network.let_go()
        for node in self.nodes:
            node.session = None

    def _node(self, broker_id: int) -> Node:
        host = f"b{broker_id}"
        self.skews_ms[host] = self.rng.randrange(-2000, 2000)
        nobody = Process(self.world, host)
        nobody.alive = False
        directory = self.empty_directory(host)
        return Node(self, broker_id, directory, Random(self.rng.random()), nobody)

    def empty_directory(self, host: str) -> MemoryDirectory:
        """Return the log directory of a new disk."""
        disk = Disk(now_ms=lambda: int(self.world.now * 1000))
        return MemoryDirectory(f"{host}{DIRECTORY}", disk)

    # ---- clients

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, for `bootstrap.servers`."""
        return ",".join(node.address for node in self.nodes)

    def client(self, name: str) -> Process:
        """Return a new process on a machine of that name; faults befall it as they do brokers."""
        process = self.world.process(name)
        self.clients.append(process)
        return process

    def run_client(self, name: str, main: Callable[[], Coroutine[Any, Any, Any]]) -> Client:
        """Run `main()` in a process of its own; faults kill that, and start another one later."""
        client = Client(self, name, main, self.world.process(name))
        self.restarted.append(client)
        client.start()
        return client

    async def open_session(self, timeout_ms: int = SESSION_TIMEOUT_MS) -> SimSession:
        """Open a ZooKeeper session of the process that asks, for `ConsumerConnector(…, zk=…)`.

        Raises ConnectionLoss when ZooKeeper can't be reached within the time-out.
        """
        process = self.world.current
        assert process is not None

        session = self.zookeeper.session(process, timeout_ms)
        await session.start()
        return session

    # ---- brokers

    def partition_states(self) -> dict[TopicPartition, PartitionState]:
        """Return leader, epoch and in-sync replicas of every partition, as ZooKeeper has them."""
        states = {}
        for path, znode in self.zookeeper.server.tree.items():
            if path.endswith("/state"):
                _, _, _, topic, _, number, _ = path.split("/")
                partition = TopicPartition(topic, int(number))
                states[partition] = PartitionState.decode(znode.data, path)
        return states

    def start_later(self, node: Node) -> None:
        """Start a broker again, soon, unless somebody has."""
        pause_s = self.rng.uniform(*RESTART_S)
        self.world.nature.loop.call_later(pause_s, self._start_if_down, node)

    @staticmethod
    def _start_if_down(node: Node) -> None:
        if not node.running and node.powered:
            node.start()

    async def begin(self, topics: Mapping[str, int]) -> None:
        """Start all brokers; return once the topics and that of offsets are there and led.

        `topics` has the number of partitions of each. Not before every replica has its log: who
        dies before, and comes back as the last in sync, is taken for one whose disk was lost, and
        nobody but an operator can say otherwise.
        """
        for node in self.nodes:
            node.start()
        await self.client("admin").run(lambda: self._create_topics(topics))

    async def _create_topics(self, topics: Mapping[str, int]) -> None:
        async with Admin(self.bootstrap, request_timeout_ms=5000) as admin:
            for topic, partitions in topics.items():
                await self._create_topic(admin, topic, partitions)

        config, _ = load(ClusterConfig, {"bootstrap.servers": self.bootstrap, **CLIENT})
        client = ClientCluster(self.bootstrap.split(","), config=config)
        await until(
            lambda: client.call_coordinator("g", fetch_offsets_request("g", None)),
            "offsets",
            pause_s=ASK_AGAIN_S,
            retry_on=(Exception,),
        )
        await client.close()

        partitions = sum(topics.values()) + int(self.settings["offsets.topic.num.partitions"])
        await until(lambda: self._has_logs(partitions), "all logs are there", pause_s=ASK_AGAIN_S)

    async def _create_topic(self, admin: Admin, topic: str, partitions: int) -> None:
        async def is_created() -> bool:
            results = await admin.create_topics(
                [NewTopic(topic, num_partitions=partitions, replication_factor=self.replication)]
            )
            return results[topic] is None or "exists" in str(results[topic]).lower()

        async def is_led() -> bool:
            found = (await admin.describe_topics([topic]))[topic].partitions.values()
            return len(found) == partitions and all(each.leader >= 0 for each in found)

        for holds, description in ((is_created, "is made"), (is_led, "is led")):
            await until(holds, f"{topic} {description}", pause_s=ASK_AGAIN_S, retry_on=(Exception,))

    def _has_logs(self, partitions: int) -> bool:
        states = self.partition_states()
        return len(states) == partitions and all(
            sum(node.log(partition) is not None for node in self.nodes) == self.replication
            for partition in states
        )
