"""A ZooKeeper that was filled from a copy of its nodes: every transaction number is another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from kgroup.testing.simulation.cluster import CLIENT, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.waiting import until
from protocol.topic_partition import TopicPartition
from zk.api import ZkSession
from zk.znodes import ClusterId, TopicAssignment

RECORDS = [b"record %d" % number for number in range(20)]
T0 = TopicPartition("t", 0)


async def copy_nodes(zk: ZkSession, root: str = "") -> None:
    """Delete all nodes, or a part, and create those that are persistent again with their data."""
    paths = [root]
    for path in paths:
        names, _ = await zk.children(path or "/")
        paths += [f"{path}/{name}" for name in names if (path, name) != ("", "zookeeper")]
    nodes = {path: await zk.get(path) for path in paths if path}
    for path in reversed(nodes):
        await zk.delete(path)
    for path, (data, stat) in nodes.items():
        if not stat.ephemeral_owner:
            await zk.create(path, data)


async def restore(cluster: Cluster, *, pinned: bool, root: str = "") -> list[bytes]:
    """Write records, restore ZooKeeper while all brokers are down; return what can be read then.

    With `root` only that part of it was deleted and restored.
    """
    config = CLIENT | {"bootstrap.servers": cluster.bootstrap}
    path = TopicAssignment.path("t")

    async def read() -> list[bytes]:
        async with await SimpleConsumer.for_leader(config, "t", 0) as consumer:
            fetched = await consumer.fetch(FetchRequest("t", 0, 0), max_wait_ms=100)
            return [message.value or b"" for message in fetched]

    async with Admin(cluster.bootstrap) as admin:
        assert (await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})]))["t"] is None
    async with Producer(config | {"acks": "all"}) as producer:
        for record in RECORDS:
            await producer.send_and_wait("t", record)
    await asyncio.sleep(5)

    for node in cluster.nodes:
        node.stop()
    zk = await cluster.open_session()
    await asyncio.sleep(10)
    if not pinned:
        # As a controller before 2.8 leaves it.
        await zk.set(path, TopicAssignment({0: (1, 2, 3)}).encode())
    before = cluster.zookeeper.server.tree[path].stat.czxid
    await asyncio.sleep(1)
    await copy_nodes(zk, root)
    assert cluster.zookeeper.server.tree[path].stat.czxid != before
    assert ClusterId.path() in cluster.zookeeper.server.tree

    for node in cluster.nodes:
        node.start()
    await until(read, "the partition is led", 60, pause_s=0.5, retry_on=(Exception,))
    await asyncio.sleep(5)
    assert set(cluster.partition_states()[T0].isr) == {1, 2, 3}
    return await read()


def test_cluster_whose_zookeeper_was_restored_starts_with_all_its_data() -> None:
    for pinned in (True, False):

        async def scene(cluster: Cluster, faults: Faults, pinned: bool = pinned) -> list[bytes]:
            return await cluster.client("op").run(lambda: restore(cluster, pinned=pinned))

        assert simulate(scene, seed=7) == RECORDS


@pytest.mark.fault("core-R1")
def test_cluster_whose_topics_alone_were_restored_starts_with_all_its_data() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[bytes]:
        restored = partial(restore, cluster, pinned=False, root=TopicAssignment.directory())
        return await cluster.client("op").run(restored)

    assert simulate(scene, seed=7) == RECORDS


async def restore_before_others_start(cluster: Cluster) -> list[bytes]:
    """Write to a topic of broker 3 alone, and restore a copy from before topics had ids.

    Broker 1 starts first, is the controller, and pins ids; then broker 3 starts. Return what can be
    read then.
    """
    config = CLIENT | {"bootstrap.servers": cluster.bootstrap}
    path = TopicAssignment.path("t")
    async with Admin(cluster.bootstrap) as admin:
        assert (await admin.create_topics([NewTopic("t", assignments={0: [3]})]))["t"] is None
    await asyncio.sleep(5)
    async with Producer(config | {"acks": "1"}) as producer:
        for record in RECORDS:
            await producer.send_and_wait("t", record)

    # Broker 3 has the pinned id beside its log.
    cluster.nodes[2].stop()
    await asyncio.sleep(10)
    cluster.nodes[2].start()
    await asyncio.sleep(15)
    for node in cluster.nodes:
        node.stop()
    zk = await cluster.open_session()
    await asyncio.sleep(10)
    assert TopicAssignment.read_topic_id((await zk.get(path))[0]) is not None
    await zk.set(path, TopicAssignment({0: (3,)}).encode())
    await copy_nodes(zk)

    cluster.nodes[0].start()
    await asyncio.sleep(20)
    assert TopicAssignment.read_topic_id((await zk.get(path))[0]) is not None
    cluster.nodes[1].start()
    cluster.nodes[2].start()

    async def read() -> list[bytes]:
        async with await SimpleConsumer.for_leader(config, "t", 0) as consumer:
            fetched = await consumer.fetch(FetchRequest("t", 0, 0), max_wait_ms=100)
            return [message.value or b"" for message in fetched]

    await until(cluster_leads(cluster, 3), "broker 3 leads", 60, pause_s=0.5)
    await asyncio.sleep(5)
    return await until(read, "the partition is read", 60, pause_s=0.5, retry_on=(Exception,))


def cluster_leads(cluster: Cluster, leader: int) -> Callable[[], bool]:
    return lambda: cluster.partition_states()[T0].leader == leader


@pytest.mark.fault("core-R1")
def test_id_that_was_pinned_after_the_restore_makes_no_other_topic() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[bytes]:
        return await cluster.client("op").run(lambda: restore_before_others_start(cluster))

    assert simulate(scene, seed=7) == RECORDS
