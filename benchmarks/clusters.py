"""Start clusters of three brokers of one side: a process each, with equal settings."""

import asyncio
import contextlib
import itertools
import shutil
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import attrs

from benchmarks.brokers import START_TIMEOUT_S, Side
from benchmarks.load import Address
from benchmarks.process import Process, spawn
from benchmarks.rounds import Contestant, Rounds, alternate
from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection, ConnectionFailed
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponse,
)
from protocol.records.batch import BatchBuilder, Codec
from zk.api import WatchEvent, ZkSession
from zk.session import KazooSession

BROKERS = (0, 1, 2)
SETTINGS = {
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The data of a round must be off the disk before the next round.
    "log.segment.delete.delay.ms": "0",
    # Kafka 2.3's defaults on both sides; those of 2.8 are three times as long (KIP-537).
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    # Leaders move only when a question moves them.
    "auto.leader.rebalance.enable": "false",
}
PATIENCE_S = 180.0
_OBSERVER_TIMEOUT_MS = 30_000
_REQUEST_TIMEOUT_MS = 120_000
_POLL_S = 0.1
_PROBE_PAUSE_S = 0.005
_RECORD = b"x" * 100

_topic_numbers = itertools.count()
_cluster_numbers = itertools.count()


@attrs.define(eq=False)
class Member:
    """One of the brokers, which may be killed and started again on its data."""

    broker_id: int
    address: Address
    log_directory: Path
    process: Process
    start: Callable[[], Process]


@attrs.define(eq=False)
class Cluster:
    """The brokers of one side."""

    name: str
    zookeeper: str
    members: Sequence[Member]

    @property
    def cpu_s(self) -> float:
        """Processor seconds that its brokers have used."""
        return sum(member.process.cpu_s for member in self.members)

    def kill(self, broker_id: int, *, at_once: bool = True) -> None:
        """Stop a broker, by SIGKILL if `at_once`."""
        self.members[broker_id].process.stop(at_once=at_once)

    def start(self, broker_id: int) -> None:
        """Start a broker that was killed."""
        member = self.members[broker_id]
        member.process = member.start()

    def admin(self) -> Admin:
        """Return an admin client, which must be entered."""
        return Admin(
            ",".join("{}:{}".format(*member.address) for member in self.members),
            **{"request.timeout.ms": str(_REQUEST_TIMEOUT_MS)},
        )

    @contextlib.asynccontextmanager
    async def observe(self) -> AsyncIterator[ZkSession]:
        """Open a session of its ZooKeeper for an observer."""
        zk = KazooSession(self.zookeeper, session_timeout_ms=_OBSERVER_TIMEOUT_MS)
        await zk.start()
        try:
            yield zk
        finally:
            await zk.close()

    @contextlib.asynccontextmanager
    async def connect(self, broker_id: int) -> AsyncIterator[Connection]:
        """Connect to one broker. Raises ConnectionFailed."""
        host, port = self.members[broker_id].address
        connection = await Connection.open(host, port, request_timeout_ms=_REQUEST_TIMEOUT_MS)
        try:
            yield connection
        finally:
            await connection.close()

    @contextlib.contextmanager
    def create_topic(self, assignments: Sequence[Sequence[int]]) -> Iterator[str]:
        """Create a topic with these replicas, and delete it at the end.

        It is ready when all replicas are in sync and the first replicas lead.
        """
        name = f"benchmark-{next(_topic_numbers)}"
        asyncio.run(self._create(name, assignments))
        try:
            yield name
        finally:
            asyncio.run(self._delete(name))

    async def _create(self, name: str, assignments: Sequence[Sequence[int]]) -> None:
        async with self.admin() as admin:
            topic = NewTopic(name, assignments=dict(enumerate(assignments)))
            refusal = (await admin.create_topics([topic]))[name]
            if refusal:
                raise RuntimeError(f"{self.name} does not create a topic: {refusal}")
        await self.await_leaders(name, [replicas[0] for replicas in assignments])

    async def _delete(self, name: str) -> None:
        async with self.admin() as admin:
            await admin.delete_topics([name])

    async def await_leaders(
        self, topic: str, leaders: Sequence[int], *, in_sync: bool = True, pause_s: float = _POLL_S
    ) -> None:
        """Return when every broker reports these leaders and, with `in_sync`, whole ISRs."""

        # A client may ask any broker, so all must report the leaders.
        async def await_report(broker_id: int) -> None:
            async with self.connect(broker_id) as connection:
                while await _read_leaders(connection, topic, in_sync=in_sync) != list(leaders):
                    await asyncio.sleep(pause_s)

        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*map(await_report, BROKERS))

    async def await_produced(self, leader: int, topic: str, partitions: Collection[int]) -> None:
        """Produce a record to each partition with acks=all; retry those that fail until all did."""
        builder = BatchBuilder(Codec.NONE, 2 * len(_RECORD))
        builder.try_append(-1, None, _RECORD, ())
        batch = builder.build()
        left = sorted(partitions)

        async with asyncio.timeout(PATIENCE_S), self.connect(leader) as connection:
            while left:
                data = [ProduceRequestPartition(index=index, records=batch) for index in left]
                of_topic = [ProduceRequestTopic(name=topic, partition_data=data)]
                response: ProduceResponse = await connection.call(
                    ProduceRequest(acks=-1, timeout_ms=_REQUEST_TIMEOUT_MS, topic_data=of_topic)
                )
                (topic_response,) = response.responses

                # Partitions without a leader, or without a whole ISR, are tried again.
                left = [p.index for p in topic_response.partition_responses if p.error_code]
                await asyncio.sleep(_PROBE_PAUSE_S if left else 0)


def spread_replicas(partitions: int) -> list[tuple[int, ...]]:
    """Return replicas of so many partitions on all brokers, which lead in turns."""
    turns = itertools.cycle(BROKERS[first:] + BROKERS[:first] for first in range(len(BROKERS)))
    return list(itertools.islice(turns, partitions))


async def _read_leaders(connection: Connection, topic: str, *, in_sync: bool) -> list[int]:
    """Read the partitions' leaders from one broker; -1: none, or (`in_sync`) a part of the ISR."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    response: MetadataResponse = await connection.call(request)
    return [
        -1 if in_sync and len(p.isr_nodes) < len(p.replica_nodes) else p.leader_id
        for described in response.topics
        for p in sorted(described.partitions, key=lambda p: p.partition_index)
    ]


async def await_znode(zk: ZkSession, path: str, is_there: bool) -> None:
    """Return when a znode exists, or does not: as soon as ZooKeeper fires the watch."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            changed = asyncio.Event()

            # The default binds this turn's event: an older watch may still fire.
            def fired(_: WatchEvent, changed: asyncio.Event = changed) -> None:
                changed.set()

            if (await zk.exists(path, fired) is not None) == is_there:
                return
            await changed.wait()


@contextlib.contextmanager
def start_cluster(side: Side, directory: Path) -> Iterator[Cluster]:
    """Start three brokers on empty data; stop them and delete the data at the end."""
    name = f"cluster-{next(_cluster_numbers)}"
    cluster = Cluster(side.name, f"{side.zookeeper}/{name}", [])

    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory / name, ignore_errors=True)

        # All start at once.
        cluster.members = [
            _member(side, broker_id, cluster.zookeeper, directory / name / str(broker_id))
            for broker_id in BROKERS
        ]

        # Callbacks run in reverse: the brokers stop before their data is deleted.
        for broker_id in BROKERS:
            stack.callback(cluster.kill, broker_id)
        asyncio.run(await_whole(cluster))
        yield cluster


def _member(side: Side, broker_id: int, zookeeper: str, directory: Path) -> Member:
    # The port stays the broker's own when it is started again.
    (port,) = claim_ports(0, 1)
    settings = SETTINGS | {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / "log"),
        "zookeeper.connect": zookeeper,
    }
    directory.mkdir(parents=True)
    properties = directory / "server.properties"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    start = partial(spawn, f"broker-{broker_id}", [*side.command, str(properties)], directory)
    return Member(broker_id, (HOST, port), directory / "log", start(), start)


async def await_whole(cluster: Cluster) -> None:
    """Return when every broker knows the two others and the controller."""

    async def has_all(broker_id: int) -> bool:
        with contextlib.suppress(ConnectionFailed):
            async with cluster.connect(broker_id) as connection:
                metadata: MetadataResponse = await connection.call(MetadataRequest(topics=[]))
                live = {broker.node_id for broker in metadata.brokers}
                return live == set(BROKERS) and metadata.controller_id in live
        return False

    async with asyncio.timeout(START_TIMEOUT_S):
        for member in cluster.members:
            while not await has_all(member.broker_id):
                member.process.check_alive()
                await asyncio.sleep(_POLL_S)


def measure_in_succession(
    sides: Sequence[Side],
    directory: Path,
    rounds: Rounds,
    contestant: Callable[[Cluster], AbstractContextManager[Contestant]],
) -> list[tuple[tuple[float, ...], ...]]:
    """Measure as `alternate` does, but one side's cluster after the other's.

    A cluster at rest with a thousand partitions would disturb the other one.
    """
    by_side = []
    for side in sides:
        with start_cluster(side, directory) as cluster, contestant(cluster) as contest:
            by_side.append([figures for (figures,) in alternate([contest], rounds)])
    return list(zip(*by_side, strict=True))
