"""Groups of ours and of the JVM on a broker of their day: offsets in its stores, large messages."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import Admin
from clients.errors import MessageSizeTooLarge
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import TopicPartition
from tests.interop.kafka_cluster import Cluster, unique
from tests.interop.mixed_group import Messages, MixedGroup, values_of
from tests.stage.old_kafka import old_broker
from tests.stage.zookeeper import zookeeper_session
from zk.znodes import ClusterId, TopicAssignment

OLDEST, NEWER = "0.8.2.2", "0.10.2.2"
PARTITIONS = 4
PATIENCE_S = 60.0
CALM = {"zookeeper.session.timeout.ms": "20000"}
"""Each message must be heard once: no member may be taken for dead on a busy machine."""
FETCH_BYTES, BOUND_BYTES = 10_000, 100_000


@pytest.fixture(scope="module", params=[OLDEST, NEWER])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, version: str
) -> Iterator[Cluster]:
    tree = f"{zookeeper}/{unique('old')}"
    settings = {"broker.version.fallback": version}
    asyncio.run(give_cluster_id(tree))
    with old_broker(version, tree, tmp_path_factory.mktemp("old")) as bootstrap:
        yield Cluster(bootstrap, tree, settings)


async def give_cluster_id(tree: str) -> None:
    """To make one, 0.10 needs a class that Java no longer has."""
    async with zookeeper_session(tree, create_chroot=True) as zk:
        await zk.create(ClusterId.path(), ClusterId(unique("id")).encode(), make_parents=True)


async def create_topic(cluster: Cluster, topic: str, partitions: int) -> None:
    """As `kafka-topics` of the time did."""
    assignment = TopicAssignment(dict.fromkeys(range(partitions), (0,)))
    async with zookeeper_session(cluster.zookeeper) as zk:
        await zk.create(TopicAssignment.path(topic), assignment.encode())


async def test_each_side_goes_on_where_the_other_committed_in_either_store_of_an_old_broker(
    cluster: Cluster, tmp_path: Path, version: str
) -> None:
    topic, group_id = unique("t"), unique("g")
    await create_topic(cluster, topic, PARTITIONS)
    topics = {topic: PARTITIONS}
    at = (cluster.zookeeper, group_id, tmp_path, topics, ("topic", topic))
    both = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
    kafka = {"offsets_storage": "kafka", "dual_commit_enabled": "false"}
    said: dict[str, Messages] = {}
    with MixedGroup(*at, {**cluster.settings, **CALM}) as group:
        turns = {
            "a": lambda: group.start_jvm(version, "a", **both),
            "b": lambda: group.start_ours("b", **kafka),
            "c": lambda: group.start_jvm(version, "c", **kafka),
            "d": lambda: group.start_ours("d", **both),
            "e": lambda: group.start_jvm(version, "e"),
            "f": lambda: group.start_ours("f"),
        }
        for name, start in turns.items():
            start()
            said[name] = await cluster.produce(topics, name, 12)
            await group.hears(values_of(said[name]), PATIENCE_S)
            await group.leave(name)
    heard = [(h.name, h.partition, h.offset, h.value) for h in group.heard()]
    assert sorted(heard) == sorted((name, *m) for name, batch in said.items() for m in batch)
    ends = {name: {p: offset + 1 for p, offset, _ in sorted(said[name])} for name in said}
    partitions = list(ends["f"])
    async with (
        Admin(cluster.client_settings) as admin,
        zookeeper_session(cluster.zookeeper) as zk,
    ):
        in_kafka = await admin.group_offsets(group_id, partitions)
        in_zookeeper = await ZooKeeperStore(zk).fetch(group_id, partitions)
    assert {p: committed.offset for p, committed in in_kafka.items()} == ends["d"]
    assert {p: committed.offset for p, committed in in_zookeeper.items()} == ends["f"]


async def test_a_message_above_the_fetch_size_is_asked_for_in_twice_as_much_up_to_the_bound(
    cluster: Cluster, version: str
) -> None:
    """From 0.10.1 on the broker sends the first message of a fetch however large it is (KIP-74)."""
    topic, sizes = unique("t"), [10, 7 * FETCH_BYTES, 20, 3 * BOUND_BYTES, 30]
    await create_topic(cluster, topic, 1)
    async with Producer(cluster.client_settings) as producer:
        for size in sizes:
            await producer.send_and_wait(topic, b"x" * size, partition=0)
    settings = {
        **cluster.settings,
        "zookeeper.connect": cluster.zookeeper,
        "group.id": unique("g"),
        "auto.offset.reset": "smallest",
        "fetch.message.max.bytes": FETCH_BYTES,
        "fetch.max.bytes": BOUND_BYTES,
    }
    seen = []
    async with ConsumerConnector(settings) as connector:
        (stream,) = (await connector.create_message_streams({topic: 1}))[topic]
        for _ in sizes if version == NEWER else sizes[:3]:
            seen.append(len((await anext(stream)).value))
        if version == OLDEST:
            for _ in range(2):
                with pytest.raises(MessageSizeTooLarge) as raised:
                    await anext(stream)
                assert (raised.value.offset, raised.value.fetch_bytes) == (3, BOUND_BYTES)
    async with zookeeper_session(cluster.zookeeper) as zk:
        partition = TopicPartition(topic, 0)
        committed = await ZooKeeperStore(zk).fetch(settings["group.id"], [partition])
    assert seen == sizes[: len(seen)]
    assert committed[partition].offset == (3 if version == OLDEST else 4)  # asked for, not passed
