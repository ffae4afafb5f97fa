"""A stock broker and one of ours hand a live group to each other, with its members.

A hand-over leaves members, generation and assignment as they are, and nobody notices. All
along each message is delivered at least once, and no commit goes back. `make test` has the
controller elect another coordinator for a group of three kinds, ours among them; `make interop`
also stops and kills coordinators, and has groups of each kind.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import attrs
import kafka
import pytest

from broker.kbroker.local_cluster import HOST
from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import TopicPartition
from tests.interop.driven_group import DrivenGroup, Owners, Writer
from tests.interop.handover import LATEST
from tests.interop.handover import OURS as OUR_BROKER
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import MixedCluster
from tests.interop.stock_consumers import (
    COOPERATIVE,
    JAVA_2_8,
    KINDS,
    LIBRDKAFKA,
    OURS,
    RANGE,
    Kind,
)
from tests.stage.waiting import block_until
from tests.stage.zookeeper import zookeeper_session
from zk.api import ZkSession

MAKES = {0: LATEST, 1: OUR_BROKER}
STOCK_ONE, OUR_OWN = MAKES
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)
PARTITIONS = 6
CALM_MS = 20_000
"""The test's own session with ZooKeeper, which a busy machine must not end."""

THREE_KINDS = (JAVA_2_8, LIBRDKAFKA, OURS)
MIXED = pytest.param(THREE_KINDS, RANGE, id="three-kinds-range")
OTHERS = [
    pytest.param(THREE_KINDS, COOPERATIVE, id="three-kinds-cooperative"),
    *(
        pytest.param([kind] * 2, kind.first_strategy, id=f"{kind}-{kind.first_strategy}")
        for kind in (*KINDS, OURS)
    ),
]
CASTS = [
    MIXED,
    *(pytest.param(*cast.values, id=cast.id, marks=pytest.mark.product) for cast in OTHERS),
]


@attrs.frozen
class Standing:
    """What a hand-over of the group must leave as it is."""

    generation_id: int
    member_ids: list[str]
    owners: Owners
    changes: dict[str, int]
    """How often each member was told of other partitions than before."""


@attrs.frozen
class Scene:
    """A group that consumes, in a cluster of both makes."""

    cluster: MixedCluster
    zk: ZkSession
    group: DrivenGroup

    async def hand_over_to(self, broker_id: int) -> None:
        """Have the controller elect another coordinator. Return when members go on with it."""
        await self.cluster.lead(self.zk, [OFFSETS], broker_id)
        await self.goes_on_at(broker_id)

    async def goes_on_at(self, broker_id: int) -> None:
        """Return when all members commit with a broker as their coordinator."""
        await self.group.goes_on()
        assert await self.group.coordinator() == broker_id

    async def standing(self) -> Standing:
        """Return how the group stands, once it is quiet."""
        owners = await self.group.settled()
        return Standing(
            await self.group.generation_id(),
            await self.group.member_ids(),
            owners,
            {name: len(member.changes) for name, member in self.group.running.items()},
        )

    async def is_whole(self) -> None:
        """Return when all brokers run, and each leads what it should lead."""
        await self.cluster.start_missing()
        await self.cluster.elect_preferred(self.zk, self.group.partitions)

    async def bring_back(self, broker_id: int) -> None:
        """Start a broker again; return when all members know it, and each broker leads a share.

        Clients ask for metadata when a leader moves. Without that, Java's would know the other
        broker alone, and nobody once that one is gone. So each partition moves to this one.
        """
        await self.cluster.start_missing()
        partitions = self.group.partitions
        await self.cluster.lead(self.zk, partitions, broker_id)
        await self.group.goes_on()
        for number, leader_id in enumerate(MAKES):
            await self.cluster.lead(self.zk, partitions[number :: len(MAKES)], leader_id)


@pytest.fixture(scope="module")
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    directory = tmp_path_factory.mktemp("mixed")
    with MixedCluster.of(MAKES, f"{zookeeper}/{unique('mixed')}", directory) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def group_of(
    cluster: MixedCluster, kinds: Sequence[Kind], strategy: str, directory: Path
) -> AsyncIterator[Scene]:
    """Give a group that consumes a topic that is written to. In the end all was delivered."""
    topic = unique("t")
    await cluster.start_missing()
    async with zookeeper_session(cluster.zookeeper, session_timeout_ms=CALM_MS) as zk:
        async with Admin(cluster.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, PARTITIONS, 2)]) == {topic: None}

        topics = {topic: PARTITIONS}
        at = (cluster.bootstrap, unique("g"), topics, [strategy], directory)
        with DrivenGroup(*at) as group:
            scene = Scene(cluster, zk, group)
            async with Writer(cluster.bootstrap, group.partitions) as writer:
                for kind in kinds:
                    group.start(kind)
                await group.settled()
                await scene.is_whole()
                yield scene
            await group.consumes(writer.values)
            await group.commits_all()
            await group.check()


@pytest.mark.parametrize(("kinds", "strategy"), CASTS)
async def test_elections_hand_members_to_the_other_make_and_back_and_nobody_notices(
    cluster: MixedCluster, kinds: Sequence[Kind], strategy: str, tmp_path: Path
) -> None:
    async with group_of(cluster, kinds, strategy, tmp_path) as scene:
        await scene.hand_over_to(STOCK_ONE)
        before = await scene.standing()

        for broker_id in (OUR_OWN, STOCK_ONE):
            await scene.hand_over_to(broker_id)
            after = await scene.standing()
            if all(kind.follows for kind in kinds):
                assert after == before


@pytest.mark.product
@pytest.mark.parametrize(("kinds", "strategy"), CASTS)
async def test_coordinator_of_either_make_that_stops_leaves_its_members_to_the_other(
    cluster: MixedCluster, kinds: Sequence[Kind], strategy: str, tmp_path: Path
) -> None:
    await check_stops(cluster, kinds, strategy, tmp_path, killed=False)


@pytest.mark.product
@pytest.mark.parametrize(("kinds", "strategy"), CASTS)
async def test_coordinator_of_either_make_that_is_killed_leaves_its_members_to_the_other(
    cluster: MixedCluster, kinds: Sequence[Kind], strategy: str, tmp_path: Path
) -> None:
    await check_stops(cluster, kinds, strategy, tmp_path, killed=True)


async def check_stops(
    cluster: MixedCluster, kinds: Sequence[Kind], strategy: str, directory: Path, *, killed: bool
) -> None:
    """Stop each broker while it coordinates. Members that are patient do not notice."""
    async with group_of(cluster, kinds, strategy, directory) as scene:
        for stopped, other in ((STOCK_ONE, OUR_OWN), (OUR_OWN, STOCK_ONE)):
            await scene.hand_over_to(stopped)
            before = await scene.standing()

            await cluster.stop(stopped, killed=killed)
            await scene.goes_on_at(other)
            after = await scene.standing()
            if all(kind.is_patient for kind in kinds):
                assert after == before
            await scene.bring_back(stopped)


# ---- kafka-python asks one broker for its versions, and sends them to both


@pytest.mark.parametrize(
    "first", [pytest.param(STOCK_ONE, id="stock"), pytest.param(OUR_OWN, id="ours")]
)
async def test_kafka_python_is_served_by_both_makes_whichever_it_asks_for_versions(
    cluster: MixedCluster, first: int
) -> None:
    await cluster.start_missing()
    topic, group = unique("t"), unique("g")
    # Its bootstrap broker is the one that it asks.
    bootstrap = f"{HOST}:{cluster.ports[first]}"
    partitions = [TopicPartition(topic, partition_id) for partition_id in range(len(MAKES))]

    async with zookeeper_session(cluster.zookeeper, session_timeout_ms=CALM_MS) as zk:
        async with Admin(cluster.bootstrap) as admin:
            assert await admin.create_topics([NewTopic(topic, len(MAKES), 2)]) == {topic: None}
        for partition, leader in zip(partitions, MAKES, strict=True):
            await cluster.lead(zk, [partition], leader)
        async with Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"}) as producer:
            for partition in partitions:
                await (await producer.send(topic, b"value", partition=partition.partition))

        # The first commit creates the topic of offsets.
        await asyncio.to_thread(read_and_commit, bootstrap, group, partitions)
        for coordinator in MAKES:
            await cluster.lead(zk, [OFFSETS], coordinator)
            await asyncio.to_thread(read_and_commit, bootstrap, group, partitions)


def read_and_commit(bootstrap: str, group: str, partitions: Sequence[TopicPartition]) -> None:
    """Read one record of each partition, commit it, and ask for what is committed."""
    wanted = {kafka.TopicPartition(*partition) for partition in partitions}
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
    )
    try:
        consumer.assign(list(wanted))
        consumer.seek_to_beginning()
        found: set[kafka.TopicPartition] = set()

        def has_found_all() -> bool:
            found.update(consumer.poll(timeout_ms=100))
            return found == wanted

        block_until(has_found_all, "a record of each partition is read")
        consumer.commit()
        assert {consumer.committed(partition) for partition in wanted} == {1}
    finally:
        consumer.close()

    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        offsets = admin.list_group_offsets([group])[group]
        assert {partition: at.offset for partition, at in offsets.items()} == dict.fromkeys(
            wanted, 1
        )
    finally:
        admin.close()
