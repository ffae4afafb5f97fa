"""What befalls a group of ours and of Kafka's old consumers on the JVM: partitions and topics come
and go, members sleep, leave and are restarted.

Names say who waits for whom: a consumer whose name comes first takes partitions of those behind
it. One on the JVM that comes too early tries again after two seconds, so where all is to be settled
at once it is ours that come first.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin
from groups.zookeeper.registration import consumer_of
from tests.cluster.load import Load
from tests.interop.kafka_cluster import Cluster, unique
from tests.interop.mixed_group import AT_ONCE_S, STRATEGY, WATCHFUL, MixedGroup, values_of
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import compiled
from tests.stage.zookeeper import zookeeper_session
from zk.api import ZkSession
from zk.znodes import TopicAssignment

SESSION_TIMEOUT_S, TICK_S = 3.0, 1.0
EXPIRY_S = SESSION_TIMEOUT_S + TICK_S
JVM_SETTLES_S = 20.0
STARTING_S = 60.0
PATIENCE_S = 60.0
CALM = {"zookeeper.session.timeout.ms": "20000"}
SHORT = {
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "auto.commit.interval.ms": "500",
}
PATIENT = {"rebalance.backoff.ms": "500", "rebalance.max.retries": "20"}
OURS = "ours"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Consumers on the JVM ask for topics that are gone, which must not bring them back."""
    settings = ("--set", "auto.create.topics.enable=false")
    with DevCluster(tmp_path_factory.mktemp("dev"), settings) as ours:
        yield Cluster(ours.address("bootstrap"), ours.address("zookeeper"))


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """A release of Kafka whose programs are there to be run."""
    compiled(request.param)
    return str(request.param)


def start(group: MixedGroup, kind: str, name: str, streams: int = 1) -> None:
    """A member of ours, or on a release of Kafka."""
    if kind == OURS:
        group.start_ours(name, streams=streams)
    else:
        group.start_jvm(kind, name, streams=streams)


async def add_partitions(zk: ZkSession, topic: str, partitions: int) -> None:
    """As `kafka-topics --alter` does."""
    path = TopicAssignment.path(topic)
    content, stat = await zk.get(path)
    replicas = dict(TopicAssignment.decode(content).partitions)
    replicas |= dict.fromkeys(range(len(replicas), partitions), replicas[0])
    await zk.set(path, TopicAssignment(replicas).encode(), stat.version)


@pytest.mark.parametrize(
    ("ours", "version", "alike"),
    [
        pytest.param("roundrobin", "0.8.2.2", True, id="0.8-alike"),
        pytest.param("roundrobin", "0.10.2.2", False, id="0.10-unlike"),
        pytest.param("roundrobin-1.0", "1.1.1", False, id="1.1-unlike"),
    ],
    indirect=["version"],
)
async def test_both_sides_deal_partitions_out_in_the_same_turn(
    cluster: Cluster, tmp_path: Path, ours: str, version: str, alike: bool
) -> None:
    """0.8.2.2 does so only where all ask for the same topics."""
    prefix = unique("r")
    topics = {f"{prefix}-a": 11, f"{prefix}-bb": 4, f"{prefix}-bc": 2}
    for topic, partitions in topics.items():
        await cluster.create_topic(topic, partitions)
    all_topics, two = ("whitelist", f"{prefix}-.*"), ("whitelist", f"{prefix}-b.")
    at = (cluster.zookeeper, unique("g"), tmp_path, topics, all_topics)
    with MixedGroup(*at, {**CALM, **PATIENT, STRATEGY: ours}) as group:
        group.start_ours("a", streams=2, wanted=all_topics if alike else ("topic", f"{prefix}-a"))
        group.start_ours("e")
        theirs = {STRATEGY: "roundrobin"}
        group.start_jvm(version, "c", streams=3, wanted=all_topics if alike else two, **theirs)
        async with zookeeper_session(cluster.zookeeper) as zk:
            owners = await group.at_rest(zk, STARTING_S)
        said = await cluster.produce(topics, "said", 22)
        await group.hears(values_of(said), PATIENCE_S)
        assert group.heard_by(said) == {p: consumer_of(owners[p]) for p, _, _ in said}
        assert len(group.heard()) == len(said)


@pytest.mark.parametrize("version", ["0.8.2.2", "1.1.1"], indirect=True)
async def test_partitions_added_to_a_topic_are_owned_at_once(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    topic = unique("t")
    await cluster.create_topic(topic, 4)
    topics = {topic: 4}
    group = MixedGroup(cluster.zookeeper, unique("g"), tmp_path, topics, ("topic", topic), CALM)
    async with zookeeper_session(cluster.zookeeper) as zk:
        with group:
            group.start_ours("a", **WATCHFUL)
            group.start_jvm(version, "n", streams=2)
            await group.at_rest(zk, STARTING_S)
            said = await cluster.produce(topics, "before", 20)
            await group.hears(values_of(said), PATIENCE_S)
            await add_partitions(zk, topic, 11)
            topics[topic] = 11
            await group.settled(zk, AT_ONCE_S)
            owners = await group.at_rest(zk, JVM_SETTLES_S)
            said |= (after := await cluster.produce(topics, "after", 33))
            await group.hears(values_of(after), PATIENCE_S)
            assert group.heard_by(after) == {p: consumer_of(owners[p]) for p, _, _ in after}
            assert len(group.heard()) == len(said)


@pytest.mark.parametrize("kind", [OURS, "1.1.1"])
async def test_who_sleeps_through_its_session_comes_back_as_any_other(
    cluster: Cluster, tmp_path: Path, kind: str
) -> None:
    other = "1.1.1" if kind == OURS else OURS
    for each in {kind, other} - {OURS}:
        compiled(each)
    topic = unique("t")
    topics = {topic: 6}
    await cluster.create_topic(topic, topics[topic])
    group = MixedGroup(cluster.zookeeper, unique("g"), tmp_path, topics, ("topic", topic), SHORT)
    async with zookeeper_session(cluster.zookeeper) as zk:
        with group:
            start(group, kind, "sleeper", streams=2)
            start(group, other, "watcher")
            await group.settled(zk, STARTING_S)
            async with Load(cluster.bootstrap, topic, pause_s=0.01) as load:
                group.stop("sleeper")
                await group.settled(zk, EXPIRY_S + JVM_SETTLES_S)
                group.go_on("sleeper")
                await group.settled(zk, STARTING_S)
            meanwhile = {v.decode() for values in load.records.values() for v in values.values()}
            owners = await group.at_rest(zk, STARTING_S)
            after = await cluster.produce(topics, "after", 12)
            await group.hears(meanwhile | values_of(after), PATIENCE_S)
            assert group.heard_by(after) == {p: consumer_of(owners[p]) for p, _, _ in after}
            assert sum(h.value in values_of(after) for h in group.heard()) == len(after)


@pytest.mark.parametrize("version", ["0.8.2.2", "1.1.1"], indirect=True)
async def test_who_leaves_in_good_order_is_replaced_at_once(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    topic = unique("t")
    await cluster.create_topic(topic, 7)
    at = (cluster.zookeeper, unique("g"), tmp_path, {topic: 7}, ("topic", topic), CALM)
    async with zookeeper_session(cluster.zookeeper) as zk:
        with MixedGroup(*at) as group:
            group.start_ours("a", **WATCHFUL)
            group.start_jvm(version, "m")
            group.start_ours("z", **WATCHFUL)
            await group.at_rest(zk, STARTING_S)
            await group.leave("z")
            await group.settled(zk, AT_ONCE_S)
            await group.leave("m")
            await group.settled(zk, AT_ONCE_S)
            start(group, version, "n", streams=2)
            await group.at_rest(zk, STARTING_S)
            await group.leave("a")
            await group.settled(zk, AT_ONCE_S)


@pytest.mark.parametrize("version", ["0.10.2.2"], indirect=True)
async def test_a_topic_deleted_while_owned_is_given_up_and_consumed_again_when_it_is_back(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    prefix = unique("w")
    stays, goes = f"{prefix}-stays", f"{prefix}-goes"
    topics = {stays: 3, goes: 4}
    for topic, partitions in topics.items():
        await cluster.create_topic(topic, partitions)
    wanted = ("whitelist", f"{prefix}-.*")
    group = MixedGroup(cluster.zookeeper, unique("g"), tmp_path, topics, wanted, CALM)
    async with zookeeper_session(cluster.zookeeper) as zk, Admin(cluster.bootstrap) as admin:
        with group:
            start(group, OURS, "a", streams=2)
            start(group, version, "m", streams=2)
            await group.at_rest(zk, STARTING_S)
            said = await cluster.produce(topics, "before", 24)
            await group.hears(values_of(said), PATIENCE_S)
            assert await admin.delete_topics([goes]) == {goes: None}
            topics[goes] = 0
            await group.at_rest(zk, JVM_SETTLES_S)
            said |= (without := await cluster.produce({stays: 3}, "without", 6))
            await group.hears(values_of(without), PATIENCE_S)
            topics[goes] = 5
            await cluster.create_topic(goes, 5)
            await group.at_rest(zk, JVM_SETTLES_S)
            again = await cluster.produce(topics, "again", 15)
            await group.hears(values_of(again), PATIENCE_S)
            heard = [(h.partition, h.offset, h.value) for h in group.heard()]
            assert sorted(heard) == sorted([*said, *again])


async def test_when_all_have_been_restarted_one_by_one_no_partition_is_left_out(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The next one's turn comes while the group is still busy with the last one."""
    kinds = {"a": OURS, "c": "0.10.2.2", "p": OURS, "z": "1.1.1"}
    for kind in {*kinds.values()} - {OURS}:
        compiled(kind)
    topic = unique("t")
    await cluster.create_topic(topic, partitions := 12)
    topics = {topic: partitions}
    group = MixedGroup(cluster.zookeeper, unique("g"), tmp_path, topics, ("topic", topic), SHORT)
    async with zookeeper_session(cluster.zookeeper) as zk:
        with group:
            for name, kind in kinds.items():
                start(group, kind, name)
            await group.settled(zk, STARTING_S)
            async with Load(cluster.bootstrap, topic, pause_s=0.01) as load:
                for name, kind in kinds.items():
                    if name in "ac":
                        await group.leave(name)
                    else:
                        group.kill(name)
                    start(group, kind, f"{name}2")
                await group.settled(zk, STARTING_S)
            said = {v.decode() for values in load.records.values() for v in values.values()}
            await group.hears(said, PATIENCE_S)
            assert len(group.shares) == partitions
