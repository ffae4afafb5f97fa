"""Two stock brokers and one of ours in one cluster, as while the ones are replaced by the others.

Each kind leads, follows, coordinates and controls in turn, under a load of acks=all. What is held
to the end: nothing that was acknowledged is missing, and the replicas are the same bytes.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import attrs
import pytest

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from benchmarks.process import Process, spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import PREFERRED, Admin, NewTopic
from clients.transport.connection import Connection
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.topic_partition import TopicPartition
from tests.cluster.load import Load
from tests.cluster.restartable_cluster import partition_state, play
from tests.interop.handover import LATEST, OURS, command_of
from tests.interop.kafka_cluster import unique
from tests.stage.stock_kafka import jars
from tests.stage.waiting import DEADLINE_S, block_until, until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import NoNode, ZkSession
from zk.znodes import Controller

MAKES = {0: LATEST, 1: LATEST, 2: OURS}
STOCK_ONE, ANOTHER_STOCK_ONE, OUR_OWN = MAKES
PARTITIONS = 3

SETTINGS = {
    "inter.broker.protocol.version": "2.3",
    "log.message.format.version": "2.3",
    "zookeeper.session.timeout.ms": "3000",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
JAVA_TOO = {"JAVA_TOOL_OPTIONS": "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info"}
IN_GOOD_ORDER = {
    LATEST: "Controlled shutdown succeeded",
    OURS: "controlled shutdown: all leaders are moved",
}

of_either_kind = pytest.mark.parametrize(
    "broker_id", [pytest.param(OUR_OWN, id="ours"), pytest.param(STOCK_ONE, id="stock")]
)


@attrs.define(eq=False)
class MixedCluster:
    """Brokers by id, each with a port and a directory of its own, on one tree of ZooKeeper."""

    zookeeper: str
    directory: Path
    makes: dict[int, str] = attrs.field(factory=lambda: dict(MAKES))
    ports: dict[int, int] = attrs.field(
        factory=lambda: dict(zip(MAKES, claim_ports(0, len(MAKES)), strict=True))
    )
    running: dict[int, Process] = attrs.field(factory=dict)

    @property
    def bootstrap(self) -> str:
        """Where the brokers are, or will be again."""
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    async def start_missing(self) -> None:
        """Return when all of them serve."""
        missing = self.makes.keys() - self.running.keys()
        self.running |= {each: self._spawn(each) for each in missing}
        for each in missing:
            await asyncio.to_thread(
                block_until, partial(self._serves, each), f"broker {each} serves"
            )

    def _spawn(self, broker_id: int) -> Process:
        """It dies with the thread that calls this."""
        places = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[broker_id]}",
            "log.dirs": str(self.directory / f"log-{broker_id}"),
            "zookeeper.connect": self.zookeeper,
        }
        file = self.directory / f"{broker_id}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in (SETTINGS | places).items()))
        make = self.makes[broker_id]
        name, command = f"broker-{broker_id}-{make}", command_of(make, file)
        return spawn(name, command, self.directory, os.environ | JAVA_TOO)

    def _serves(self, broker_id: int) -> bool:
        self.running[broker_id].check_alive()
        with contextlib.suppress(OSError, LoadError):
            return is_serving((HOST, self.ports[broker_id]))
        return False

    async def stop(self, broker_id: int, *, killed: bool = False) -> str:
        """Return when its process is gone: what its make has ever said there."""
        process = self.running.pop(broker_id)
        await asyncio.to_thread(process.stop, at_once=killed, timeout_s=DEADLINE_S)
        return process.log_file.read_text()


@attrs.frozen
class Scene:
    """A topic of three replicas that is written to, with commits besides: what is asked of it."""

    cluster: MixedCluster
    zk: ZkSession
    load: Load
    partitions: tuple[TopicPartition, ...]
    """The topic's, and that of the offsets."""

    async def elect(self, broker_id: int) -> None:
        """Make it the controller: the others are held still meanwhile, and have heard of it."""
        if await self._controller() == broker_id:
            return
        others = [each for other, each in self.cluster.running.items() if other != broker_id]
        for each in others:
            each.child.send_signal(signal.SIGSTOP)
        try:
            await self.zk.delete(Controller.path())
            await until_equal(self._controller, broker_id)
        finally:
            for each in others:
                each.child.send_signal(signal.SIGCONT)
        await until_equal(self._differ, False)

    async def lead(self, broker_id: int) -> None:
        """Make it the preferred leader of all, and the leader, once all that run are in sync."""
        for each in self.partitions:
            await until_equal(partial(self._isr, each), set(self.cluster.running))
        order = [broker_id, *(each for each in MAKES if each != broker_id)]
        async with Admin(self.cluster.bootstrap) as admin:
            begun = await admin.alter_partition_reassignments(dict.fromkeys(self.partitions, order))
            assert set(begun.values()) == {None}
            await until_equal(admin.list_partition_reassignments, {})
            await until_equal(partial(self._refused, admin), set())
        for each in self.partitions:
            await until_equal(partial(self._leader, each), broker_id)

    async def goes_on(self) -> None:
        """Return when more records and commits are acknowledged, and all brokers that run tell
        the same of the cluster, whatever their kind."""
        await self.load.acknowledges(200, 20)
        await until_equal(self._differ, False)

    async def assert_whole(self) -> None:
        """All replicas are in sync, the same bytes, and have what was acknowledged."""
        for each in self.partitions:
            await until_equal(partial(self._isr, each), set(MAKES))
            await until_equal(partial(self._copies, each), 1)
        await self.load.assert_kept()

    async def _controller(self) -> int | None:
        with contextlib.suppress(NoNode):
            return Controller.decode((await self.zk.get(Controller.path()))[0]).broker_id
        return None

    async def _leader(self, tp: TopicPartition) -> int:
        return (await partition_state(self.zk, *tp)).leader

    async def _refused(self, admin: Admin) -> set[ErrorCode]:
        """What speaks against preferred leaders now: one that was in sync may not be."""
        told = await admin.elect_leaders(PREFERRED, self.partitions)
        codes = {error.code for error in told.values() if error is not None}
        return codes - {ErrorCode.ELECTION_NOT_NEEDED}

    async def _isr(self, tp: TopicPartition) -> set[int]:
        return set((await partition_state(self.zk, *tp)).isr)

    async def _copies(self, tp: TopicPartition) -> int:
        """How many different logs there are of a partition."""
        found = set()
        for each in MAKES:
            log = self.cluster.directory / f"log-{each}" / f"{tp.topic}-{tp.partition}"
            found.add(b"".join(file.read_bytes() for file in sorted(log.glob("*.log"))))
        return len(found)

    async def _differ(self) -> bool:
        first, *others = [await self._told(each) for each in self.cluster.running]
        return any(each != first for each in others)

    async def _told(self, broker_id: int) -> tuple[object, ...]:
        """What a broker says of the cluster, in an order of ours."""
        connection = await Connection.open(HOST, self.cluster.ports[broker_id])
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self.load.topic)])
        told: MetadataResponse = await connection.call(request)
        await connection.close()
        brokers = sorted((each.node_id, each.host, each.port) for each in told.brokers)
        partitions = sorted(
            (p.partition_index, p.error_code, p.leader_id, p.leader_epoch, sorted(p.isr_nodes))
            for p in told.topics[0].partitions
        )
        replicas = {
            p.partition_index: (p.replica_nodes, p.offline_replicas)
            for p in told.topics[0].partitions
        }
        return told.cluster_id, told.controller_id, brokers, partitions, replicas


@pytest.fixture(scope="module")
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Tests share it, and start anew whom another has stopped."""
    jars()  # or skip
    found = MixedCluster(f"{zookeeper}/{unique('mixed')}", tmp_path_factory.mktemp("mixed"))
    try:
        yield found
    finally:
        for process in found.running.values():
            process.stop(at_once=True)


@contextlib.asynccontextmanager
async def under_load(cluster: MixedCluster) -> AsyncIterator[Scene]:
    """All brokers run, and a new topic is written to until the end of the block; then it is
    looked whether all of it is there."""
    await cluster.start_missing()
    topic = unique("t")
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    async with zookeeper_session(cluster.zookeeper) as zk:
        async with Admin(cluster.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, PARTITIONS, 3)]) == {topic: None}
        async with Load(cluster.bootstrap, topic, pause_s=0.001, group=topic) as load:
            scene = Scene(cluster, zk, load, (*partitions, TopicPartition(OFFSETS_TOPIC, 0)))
            await scene.goes_on()
            yield scene
        await scene.assert_whole()


@of_either_kind
def test_leaders_and_coordinators_move_both_ways_under_a_controller_of_either_kind(
    cluster: MixedCluster, broker_id: int
) -> None:
    async def scenario() -> None:
        async with under_load(cluster) as scene:
            await scene.elect(broker_id)
            for leader in (OUR_OWN, STOCK_ONE):
                await scene.lead(leader)
                await scene.goes_on()

    play(scenario())


@of_either_kind
def test_kill_9_of_who_leads_and_controls_loses_nothing_that_was_acknowledged(
    cluster: MixedCluster, broker_id: int
) -> None:
    async def scenario() -> None:
        async with under_load(cluster) as scene:
            await scene.elect(broker_id)
            await scene.lead(broker_id)
            await scene.goes_on()
            await cluster.stop(broker_id, killed=True)
            await scene.goes_on()
            await cluster.start_missing()
            await scene.lead(broker_id)

    play(scenario())


def test_a_stock_broker_gives_its_place_to_one_of_ours_and_takes_it_back(
    cluster: MixedCluster,
) -> None:
    async def scenario() -> None:
        async with under_load(cluster) as scene:
            for controller, leaves, comes in (
                (OUR_OWN, LATEST, OURS),
                (ANOTHER_STOCK_ONE, OURS, LATEST),
            ):
                await scene.elect(controller)
                await scene.lead(STOCK_ONE)
                assert IN_GOOD_ORDER[leaves] in await cluster.stop(STOCK_ONE)
                cluster.makes[STOCK_ONE] = comes
                await cluster.start_missing()
                await scene.lead(STOCK_ONE)
                await scene.goes_on()

    play(scenario())
