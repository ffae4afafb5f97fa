"""Groups of ours and of Kafka's old consumers on the JVM, whose members are the same to each other.

Where we take over from a member that left in good order, all is settled at once; a JVM member may
need some of its four tries, two seconds apart.
"""

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from clients.admin import Admin
from clients.producer.messages import KeyedMessage
from clients.producer.producer import Producer
from groups.zookeeper.registration import consumer_of
from offsets.zookeeper_store import ZooKeeperStore
from tests.cluster.load import Load
from tests.interop.kafka_cluster import Cluster, unique
from tests.interop.mixed_group import AT_ONCE_S, WATCHFUL, Messages, MixedGroup, values_of
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import VERSIONS, compiled, program
from tests.stage.stock_kafka import stock_broker
from tests.stage.zookeeper import zookeeper_session

SESSION_TIMEOUT_S, TICK_S = 3.0, 1.0
JVM_SETTLES_S = 20.0
STARTING_S = 60.0
PATIENCE_S = 60.0
PARTITIONS = 7
CALM = {"zookeeper.session.timeout.ms": "20000"}
"""Where each message must be heard once, no member may be taken for dead on a busy machine."""
CODECS = ("none", "gzip", "snappy", "lz4")
PRODUCT = pytest.mark.product


@pytest.fixture(scope="module")
def ours(dev_cluster: DevCluster) -> Cluster:
    return Cluster(dev_cluster.address("bootstrap"), dev_cluster.address("zookeeper"))


@pytest.fixture(scope="module")
def stock(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    tree = f"{zookeeper}/stock-{uuid4().hex[:8]}"
    settings = {"offsets.topic.num.partitions": "4"}
    with stock_broker(tree, tmp_path_factory.mktemp("stock"), settings) as bootstrap:
        yield Cluster(bootstrap, tree)


OF_EACH_RUN = [*zip(VERSIONS, ("ours", "stock", "ours"), strict=True)]
"""A broker for each release; what old clients ask of either broker is the same."""
EVERY_PAIR = [
    pytest.param(version, cluster, marks=() if (version, cluster) in OF_EACH_RUN else PRODUCT)
    for version in VERSIONS
    for cluster in ("ours", "stock")
]


@pytest.fixture(params=["ours", "stock"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """A broker of ours, and one of stock Kafka's."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """A release of Kafka whose programs are there to be run."""
    compiled(request.param)
    return str(request.param)


@pytest.mark.parametrize(("version", "cluster"), OF_EACH_RUN, indirect=True)
async def test_no_message_is_missing_while_either_side_leaves_and_dies_and_comes_back(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    topic = unique("t")
    await cluster.create_topic(topic, PARTITIONS)
    group = MixedGroup(
        cluster.zookeeper,
        unique("g"),
        tmp_path,
        {topic: PARTITIONS},
        ("topic", topic),
        {
            "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
            "auto.commit.interval.ms": "1000",
        },
    )
    expiry_s = SESSION_TIMEOUT_S + TICK_S
    async with zookeeper_session(cluster.zookeeper) as zk:
        with group:
            async with Load(cluster.bootstrap, topic, pause_s=0.01) as load:
                group.start_jvm(version, "m", streams=2)
                group.start_ours("n", **WATCHFUL)
                await group.settled(zk, STARTING_S)
                await group.leave("n")
                await group.settled(zk, JVM_SETTLES_S)
                group.start_ours("a", streams=3, **WATCHFUL)
                await group.settled(zk, STARTING_S)
                group.kill("m")
                await group.settled(zk, expiry_s + AT_ONCE_S)
                group.start_jvm(version, "m", streams=11)
                await group.settled(zk, STARTING_S)
                group.kill("a")
                await group.settled(zk, expiry_s + JVM_SETTLES_S)
                group.start_ours("z", streams=2, **WATCHFUL)
                await group.settled(zk, STARTING_S)
                await group.leave("m")
                await group.settled(zk, AT_ONCE_S)
            said = {
                (partition, offset, value.decode())
                for partition, values in load.records.items()
                for offset, value in values.items()
            }
            await group.hears(values_of(said), PATIENCE_S)
        assert said <= {(h.partition, h.offset, h.value) for h in group.heard()}


async def test_members_of_every_release_and_of_ours_share_a_topic(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Who takes over from a former owner begins where that one ended, but for members on the JVM:
    they read offsets before they claim, and hear again what was committed in between."""
    for version in VERSIONS:
        compiled(version)
    topic = unique("t")
    topics = {topic: 3 * PARTITIONS}
    await cluster.create_topic(topic, topics[topic])
    patient = {**CALM, "rebalance.backoff.ms": "500", "rebalance.max.retries": "20"}
    at = (cluster.zookeeper, unique("g"), tmp_path, topics, ("topic", topic))
    async with zookeeper_session(cluster.zookeeper) as zk:
        with MixedGroup(*at, patient) as group:
            for name, version in zip("aem", VERSIONS, strict=True):
                group.start_jvm(version, name, streams=2)
            for name in "cz":
                group.start_ours(name, streams=2)
            owners = await group.at_rest(zk, STARTING_S)
            said = await cluster.produce(topics, "said", 100)
            await group.hears(values_of(said), PATIENCE_S)
            assert group.heard_by(said) == {p: consumer_of(owners[p]) for p, _, _ in said}
            first = group.heard()
            assert len(first) == len(said)
            for name in "ez":
                await group.leave(name)
            await group.at_rest(zk, JVM_SETTLES_S)
            more = await cluster.produce(topics, "more", 100)
            await group.hears(values_of(more), PATIENCE_S)
            since = Counter(group.heard()) - Counter(first)
            assert sum(h.value in values_of(more) for h in since.elements()) == len(more)
            assert {h.name for h in since if h.value in values_of(said)} <= {*"am"}


@pytest.mark.parametrize(
    ("version", "cluster"), [*zip(VERSIONS, ("stock", "ours", "stock"), strict=True)], indirect=True
)
async def test_a_new_topic_that_a_wildcard_allows_is_shared_by_both_sides(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    prefix = unique("w")
    topics = {f"{prefix}-one": 5, f"{prefix}-two": 1}
    for topic, partitions in {**topics, f"{prefix}-other": 1}.items():
        await cluster.create_topic(topic, partitions)
    wanted = ("whitelist", f"{prefix}-one, {prefix}-t.*")
    group = MixedGroup(cluster.zookeeper, unique("g"), tmp_path, topics, wanted, CALM)
    async with zookeeper_session(cluster.zookeeper) as zk:
        with group:
            group.start_ours("m", **WATCHFUL)
            group.start_jvm(version, "n", streams=2)
            await group.at_rest(zk, STARTING_S)
            said = await cluster.produce(topics, "before", 10)
            await group.hears(values_of(said), PATIENCE_S)
            await cluster.create_topic(f"{prefix}-three", 4)
            topics[f"{prefix}-three"] = 4
            owners = await group.at_rest(zk, JVM_SETTLES_S)
            said |= (after := await cluster.produce(topics, "after", 10))
            await group.hears(values_of(after), PATIENCE_S)
            assert group.heard_by(after) == {p: consumer_of(owners[p]) for p, _, _ in after}
            await group.leave("n")
            await group.settled(zk, AT_ONCE_S)
            said |= (last := await cluster.produce(topics, "last", 10))
            await group.hears(values_of(last), PATIENCE_S)
            assert len(group.heard()) == len(said)


@pytest.mark.parametrize(("version", "cluster"), EVERY_PAIR, indirect=True)
async def test_each_side_goes_on_where_the_other_committed_in_either_store(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    topic, group_id = unique("t"), unique("g")
    await cluster.create_topic(topic, PARTITIONS)
    topics = {topic: PARTITIONS}
    group = MixedGroup(cluster.zookeeper, group_id, tmp_path, topics, ("topic", topic), CALM)
    both = {"offsets_storage": "kafka"}
    turns = {
        "a": lambda: group.start_jvm(version, "a", **both),
        "b": lambda: group.start_ours("b", offsets_storage="kafka", dual_commit_enabled="false"),
        "c": lambda: group.start_jvm(version, "c", **both),
        "d": lambda: group.start_ours("d"),
        "e": lambda: group.start_ours("e", **both),
        "f": lambda: group.start_jvm(version, "f"),
    }
    said: dict[str, Messages] = {}
    with group:
        for name, start in turns.items():
            start()
            said[name] = await cluster.produce(topics, name, 20)
            await group.hears(values_of(said[name]), STARTING_S)
            await group.leave(name)
    heard = [(h.name, h.partition, h.offset, h.value) for h in group.heard()]
    assert sorted(heard) == sorted((name, *m) for name, batch in said.items() for m in batch)
    ends = {name: {p: offset + 1 for p, offset, _ in sorted(said[name])} for name in said}
    async with Admin(cluster.bootstrap) as admin, zookeeper_session(cluster.zookeeper) as zk:
        in_kafka = await admin.group_offsets(group_id)
        in_zookeeper = await ZooKeeperStore(zk).fetch(group_id, list(ends["f"]))
    assert {p: committed.offset for p, committed in in_kafka.items()} == ends["e"]
    assert {p: committed.offset for p, committed in in_zookeeper.items()} == ends["f"]


@pytest.mark.parametrize(("version", "cluster"), EVERY_PAIR, indirect=True)
async def test_what_either_producer_sends_in_any_codec_both_sides_read_with_keys_where_they_belong(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    topic, keys = unique("t"), [f"key{number}" for number in range(40)]
    await cluster.create_topic(topic, PARTITIONS)
    command = program(version, "OldProducer", cluster.bootstrap, topic, *CODECS)
    lines = "".join(f"{key} {key} from the JVM\n" for key in keys)
    ran = await asyncio.to_thread(
        subprocess.run, command, input=lines, text=True, capture_output=True, timeout=STARTING_S
    )
    assert ran.returncode == 0, ran.stderr
    for codec in CODECS:
        settings = {
            "producer.type": "sync",
            "metadata.broker.list": cluster.bootstrap,
            "serializer.class": "kafka.serializer.StringEncoder",
            "request.required.acks": "-1",
            "compression.codec": codec,
        }
        async with Producer(settings) as producer:
            await producer.send(
                [KeyedMessage(topic, key, f"{codec} {key} of ours") for key in keys]
            )
    said = {f"{c} {k} {who}" for c in CODECS for k in keys for who in ("from the JVM", "of ours")}
    heard = {}
    for side in ("jvm", "ours"):
        (tmp_path / side).mkdir()
        at = (cluster.zookeeper, unique("g"), tmp_path / side, {topic: PARTITIONS})
        with MixedGroup(*at, ("topic", topic), CALM) as group:
            if side == "jvm":
                group.start_jvm(version, "m", streams=2)
            else:
                group.start_ours("m")
            await group.hears(said, STARTING_S)
            await group.leave("m")
        heard[side] = sorted((h.partition, h.offset, h.value) for h in group.heard())
    assert heard["jvm"] == heard["ours"]
    assert len(heard["ours"]) == len(said)
    places = {(value.split()[1], partition) for partition, _, value in heard["ours"]}
    assert len(places) == len(keys)
    assert len({partition for _, partition in places}) > 1
