"""Two stock brokers and one of ours in one cluster, as while the ones are replaced by the others.

Each kind leads, follows, coordinates and controls in turn, under a load of acks=all. What is held
to the end: nothing that was acknowledged is missing, and the replicas are the same bytes.
"""

import contextlib
from collections.abc import AsyncIterator, Iterator
from functools import partial

import attrs
import pytest

from broker.kbroker.local_cluster import HOST
from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.topic_partition import TopicPartition
from tests.cluster.load import Load
from tests.cluster.restartable_cluster import play
from tests.interop.handover import LATEST, OURS
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import MixedCluster, elect, isr
from tests.stage.waiting import until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import ZkSession

MAKES = {0: LATEST, 1: LATEST, 2: OURS}
STOCK_ONE, ANOTHER_STOCK_ONE, OUR_OWN = MAKES
PARTITIONS = 3

IN_GOOD_ORDER = {
    LATEST: "Controlled shutdown succeeded",
    OURS: "controlled shutdown: all leaders are moved",
}

of_either_kind = pytest.mark.parametrize(
    "broker_id", [pytest.param(OUR_OWN, id="ours"), pytest.param(STOCK_ONE, id="stock")]
)


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
        await elect(self.zk, self.cluster.running, broker_id)
        await until_equal(self._differ, False)

    async def lead(self, broker_id: int) -> None:
        """Make it the preferred leader of all, and the leader, once all that run are in sync."""
        await self.cluster.lead(self.zk, self.partitions, broker_id)

    async def goes_on(self) -> None:
        """Return when more records and commits are acknowledged, and all brokers that run tell
        the same of the cluster, whatever their kind."""
        await self.load.acknowledges(200, 20)
        await until_equal(self._differ, False)

    async def assert_whole(self) -> None:
        """All replicas are in sync, the same bytes, and have what was acknowledged."""
        for each in self.partitions:
            await until_equal(partial(isr, self.zk, each), set(MAKES))
            await until_equal(partial(self._copies, each), 1)
        await self.load.assert_kept()

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
    directory = tmp_path_factory.mktemp("mixed")
    with MixedCluster.of(MAKES, f"{zookeeper}/{unique('mixed')}", directory) as cluster:
        yield cluster


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
