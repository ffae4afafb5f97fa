"""Three brokers and a ZooKeeper in a world of their own, made from a seed.

The brokers are the product's, whole and unchanged: they are given a session, a clock, a disk and a
port of this world, and know no difference. Who finds that its broker has stopped by itself starts
it again, as an operator's supervisor does.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import attrs

from broker.replication.partition import Partition
from broker.server import Broker, BrokerStopped
from broker.settings.config import load_broker_config
from clients.admin import Admin, NewTopic
from clients.cluster import Cluster as ClientCluster
from clients.config import ClusterConfig
from compaction.job import CleaningJob
from compaction.worker_pool import InLoop, OnEvent
from core_log.memory_directory import Disk, MemoryDirectory
from core_log.storage import Directory
from offsets.requests import fetch_offsets_request
from protocol.settings import load
from protocol.topic_partition import TopicPartition
from tests.simulation.invariants import Invariants
from tests.simulation.network import Network
from tests.simulation.story import Story
from tests.simulation.workload import CLIENT
from tests.simulation.world import Process, World
from tests.simulation.zookeeper import HOST as ZK_HOST
from tests.simulation.zookeeper import SimSession, SimZooKeeper
from tests.stage.waiting import until

BROKERS = 3
REPLICATION = 3
"""Of every topic, the offsets topic included."""
MIN_INSYNC = 1 if REPLICATION == 1 else 2
TOPIC = "t"
PARTITIONS = 6
OFFSETS_PARTITIONS = 3
SESSION_TIMEOUT_MS = 6000
LAG_TIMES_MS = (1500, 5000)
"""replica.lag.time.max.ms, one in the whole story: ISRs change often, or seldom."""
PORT = 9092
RESTART_S = (0.5, 3.0)
CLEANING_STEP_S = 0.3
"""The longest: so a fault may well come between two steps of a cleaning."""
DIRECTORY = "/logs"
until_answered = functools.partial(until, pause_s=0.1, retry_on=(Exception,))
"""Wait for an answer that a fault may keep from coming, or make an error."""

SETTINGS = {
    "zookeeper.connect": f"{ZK_HOST}:2181",
    "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    "log.dirs": DIRECTORY,
    "num.io.threads": "1",
    "auto.create.topics.enable": "false",
    "default.replication.factor": str(REPLICATION),
    "min.insync.replicas": str(MIN_INSYNC),
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "offsets.load.buffer.size": "512",
    "offsets.topic.replication.factor": str(REPLICATION),
    "group.initial.rebalance.delay.ms": "500",
    "controller.socket.timeout.ms": "5000",
    "log.retention.ms": "-1",
    "log.segment.bytes": "65536",
    "offsets.topic.segment.bytes": "1500",
    "log.cleaner.backoff.ms": "2000",
    "log.cleaner.min.cleanable.ratio": "0.1",
    "log.flush.offset.checkpoint.interval.ms": "7000",
}


@attrs.define(eq=False)
class Told:
    """Workers whose work is counted."""

    story: Story
    workers: InLoop

    async def run(
        self,
        job: CleaningJob,
        directory: Directory,
        heard: OnEvent,
    ) -> None:
        """As theirs."""
        await self.workers.run(job, directory, heard)
        self.story.counts["cleaned logs"] += 1

    def change_speed(self, bytes_per_second: float) -> None:
        """As theirs."""
        self.workers.change_speed(bytes_per_second)

    async def end_idle(self) -> None:
        """As theirs."""
        await self.workers.end_idle()


@attrs.define(eq=False)
class Node:
    """The machine of one broker: its disk stays, its processes come and go."""

    cluster: Cluster
    broker_id: int
    directory: MemoryDirectory
    chance: Random
    process: Process
    session: SimSession | None = None
    powered: bool = True
    serving: bool = False
    """Since then its logs are recovered: before, after a power failure, they hold anything."""
    _unchecked: list[Partition] = attrs.field(factory=list)

    @property
    def host(self) -> str:
        """The name of the machine."""
        return f"b{self.broker_id}"

    @property
    def address(self) -> str:
        """Where the broker listens."""
        return f"{self.host}:{PORT}"

    @property
    def running(self) -> bool:
        """Whether there is a process, well or not."""
        return self.process.alive

    def log(self, tp: TopicPartition) -> MemoryDirectory | None:
        """The directory of a partition's log, if there is one."""
        name = str(tp)
        return self.directory.child(name) if name in self.directory.children() else None

    def write_back(self) -> None:
        """The system writes what is still in memory to the disk, as it does from time to time."""
        for directory in (self.directory, *map(self.directory.child, self.directory.children())):
            for name in directory.files():
                directory.open_segment(name).fsync()
            directory.fsync_dir()

    def start(self) -> None:
        """Start the broker."""
        world = self.cluster.world
        self.process = process = Process(world, self.host)
        process.skew_ms = self.cluster.skews_ms[self.host]
        self.session = self.cluster.zookeeper.session(process, SESSION_TIMEOUT_MS)
        self._unchecked = []
        given = SETTINGS | self.cluster.settings
        given |= {"broker.id": str(self.broker_id), "listeners": f"PLAINTEXT://{self.host}:{PORT}"}
        with world.within(process):
            broker = Broker(
                load_broker_config(given)[0],
                zk=self.session,
                now_ms=process.now_ms,
                rng=Random(self.chance.random()),
                open_directory=lambda path: self.directory,
                bind=world.network.bind_of(process),
                workers=Told(world.story, InLoop(lambda: self.chance.random() * CLEANING_STEP_S)),
            )
        process.after_turn = partial(self._check_next, broker)
        process.spawn(self._live(process, broker), f"broker {self.broker_id}")
        world.story.tell(self.host, "starts")

    def _check_next(self, broker: Broker) -> None:
        """Check one replica of the broker, after each turn the next: all would take too long."""
        if not self._unchecked:
            self._unchecked = list(broker.partitions.values())
        if self._unchecked:
            self.cluster.invariants.check_replica(self.host, self._unchecked.pop())

    async def _live(self, process: Process, broker: Broker) -> None:
        story = self.cluster.world.story
        try:
            await broker.start()
            self.serving = True
            story.tell(self.host, "serves")
            await broker.run_until(asyncio.Event())
        except Exception as error:
            if not (isinstance(error, BrokerStopped) or story.expects_stop(error)):
                raise
            story.tell(self.host, f"stops: {error}")
            story.bite("broker stopped")
        await broker.close()
        self.cluster.world.nature.loop.call_soon(self._exited, process)

    def _exited(self, process: Process) -> None:
        if process.alive:
            self.stop()
            self.cluster.start_later(self)

    def stop(self, *, silent: bool = False) -> None:
        """The process is no more; with `silent`, neither is its machine."""
        world = self.cluster.world
        self.serving = False
        world.network.stop(self.process, silent=silent)
        self.cluster.zookeeper.disconnect(self.process)
        self.process.kill()
        self.directory.unlock()


class Cluster:
    """The brokers, and everything a story needs to know of them."""

    def __init__(self, seed: int) -> None:
        self.world = world = World(seed)
        self.chance = Random(world.chance.random())
        world.network = self.network = Network(world)
        self.zookeeper = SimZooKeeper(world)
        self.skews_ms: dict[str, int] = {}
        self.every_record_flushed = self.chance.random() < 0.5
        self.settings = {"replica.lag.time.max.ms": str(self.chance.choice(LAG_TIMES_MS))}
        if self.every_record_flushed:
            self.settings["log.flush.interval.messages"] = "1"
        self.may_lose_power = self.every_record_flushed or self.chance.random() < 0.5
        self.nodes = [self._node(broker_id) for broker_id in range(1, BROKERS + 1)]
        self.invariants = Invariants(self)
        self.clients: list[Process] = []
        world.at_end.append(self._let_go)

    def _let_go(self) -> None:
        self.zookeeper.let_go()
        self.network.let_go()
        for node in self.nodes:
            node.session = None

    def _node(self, broker_id: int) -> Node:
        host = f"b{broker_id}"
        self.skews_ms[host] = self.chance.randrange(-2000, 2000)
        nobody = Process(self.world, host)
        nobody.alive = False
        directory = self.empty_directory(host)
        return Node(self, broker_id, directory, Random(self.chance.random()), nobody)

    def empty_directory(self, host: str) -> MemoryDirectory:
        """The log directory of a new disk."""
        disk = Disk(now_ms=lambda: int(self.world.now * 1000))
        return MemoryDirectory(f"{host}{DIRECTORY}", disk)

    partitions = PARTITIONS
    replication = REPLICATION

    def client_config(self) -> ClusterConfig:
        """What clients that take no names are given."""
        return load(ClusterConfig, {"bootstrap.servers": self.bootstrap, **CLIENT})[0]

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(node.address for node in self.nodes)

    def client(self, name: str) -> Process:
        """A machine for a client."""
        process = self.world.process(name)
        self.clients.append(process)
        return process

    def start_later(self, node: Node) -> None:
        """Start a broker again, soon, unless somebody has."""
        pause_s = self.chance.uniform(*RESTART_S)
        self.world.nature.loop.call_later(pause_s, self._start_if_down, node)

    @staticmethod
    def _start_if_down(node: Node) -> None:
        if not node.running and node.powered:
            node.start()

    async def begin(self) -> None:
        """Start all brokers; return once the topic and that of offsets are there and led.

        Not before every replica has its log: who dies before, and comes back as the last in sync,
        is taken for one whose disk was lost, and nobody but an operator can say otherwise.
        """
        for node in self.nodes:
            node.start()
        admin = self.client("admin")
        await self.on(admin, self._create_topic)

    async def _create_topic(self) -> None:
        async with Admin(self.bootstrap, request_timeout_ms=5000) as admin:

            async def created() -> bool:
                results = await admin.create_topics(
                    [NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=REPLICATION)]
                )
                return results[TOPIC] is None or "exists" in str(results[TOPIC]).lower()

            await until_answered(created, "the topic is made")

            async def led() -> bool:
                found = await admin.describe_topics([TOPIC])
                partitions = found[TOPIC].partitions.values()
                return len(partitions) == PARTITIONS and all(p.leader >= 0 for p in partitions)

            await until_answered(led, "the topic is led")
        client = ClientCluster(self.bootstrap.split(","), config=self.client_config())
        await until_answered(
            lambda: client.call_coordinator("g", fetch_offsets_request("g", None)), "offsets"
        )
        await client.close()
        await until_answered(self._all_made, "all logs are there")

    async def _all_made(self) -> bool:
        states = self.invariants.states
        return len(states) == PARTITIONS + OFFSETS_PARTITIONS and all(
            node.log(tp) is not None for tp in states for node in self.nodes
        )

    async def on(self, process: Process, work: Callable[[], Awaitable[Any]]) -> Any:
        """Do something in a process, and wait for it here."""
        here = asyncio.get_running_loop()
        done: asyncio.Future[Any] = here.create_future()

        async def there() -> None:
            result = await work()
            here.call_soon(done.set_result, result)

        process.spawn(there(), str(process))
        return await done
