"""A member of a group dies, another leaves, one joins: who owns what, how soon, what is missing."""

import asyncio
from pathlib import Path

import pytest

from clients.admin import LATEST_TIME, Admin, NewTopic
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import TopicPartition
from tests.cluster.consumer_group import POLL_S, MemberProcesses
from tests.cluster.load import Load
from tests.stage.cluster import DevCluster
from zk.session import KazooSession

PARTITIONS = 6
SESSION_TIMEOUT_S = 3.0
TICK_S = 1.0
SETTLING_S = 10.0
PATIENCE_S = 60.0

STORES = {
    "zookeeper": {"offsets.storage": "zookeeper"},
    "kafka": {"offsets.storage": "kafka", "dual.commit.enabled": "false"},
}


async def joins(group: MemberProcesses, zk: KazooSession, *names: str) -> None:
    for name in names:
        group.start(name)
    for name in names:
        await group.registered(zk, name, PATIENCE_S)
    await group.settled(zk, SETTLING_S)


async def dies(group: MemberProcesses, zk: KazooSession, name: str) -> None:
    group.kill(name)
    await group.settled(zk, SESSION_TIMEOUT_S + TICK_S + SETTLING_S)


async def leaves(group: MemberProcesses, zk: KazooSession, name: str) -> None:
    group.leave(name)
    await group.settled(zk, SETTLING_S)


async def ends_of(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    times = {TopicPartition(topic, p): LATEST_TIME for p in range(PARTITIONS)}
    return {p: listed.offset for p, listed in (await admin.list_offsets(times)).items()}


async def committed(
    storage: str, admin: Admin, zk: KazooSession, group: str, topic: str
) -> dict[TopicPartition, int]:
    if storage == "kafka":
        found = await admin.group_offsets(group)
    else:
        partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        found = await ZooKeeperStore(zk).fetch(group, partitions)
    return {partition: committed.offset for partition, committed in found.items()}


@pytest.mark.parametrize("storage", STORES)
async def test_partitions_of_the_dead_are_taken_over_and_no_message_is_missing(
    dev_cluster: DevCluster, tmp_path: Path, storage: str
) -> None:
    topic, group_id = f"shared-{storage}", f"group-{storage}"
    bootstrap = dev_cluster.address("bootstrap")
    session = {"zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000))}
    group = MemberProcesses(
        dev_cluster, group_id, topic, PARTITIONS, session | STORES[storage], tmp_path
    )
    async with Admin(bootstrap) as admin, dev_cluster.zookeeper_session() as zk:
        assert await admin.create_topics([NewTopic(topic, PARTITIONS, 1)]) == {topic: None}
        with group:
            async with Load(bootstrap, topic, pause_s=0.003) as load:
                await joins(group, zk, "a", "b", "c")
                await dies(group, zk, "b")
                await joins(group, zk, "d")
                await leaves(group, zk, "a")
            await group.consumes(load.records, PATIENCE_S)
            ends = await ends_of(admin, topic)
            async with asyncio.timeout(PATIENCE_S):
                while await committed(storage, admin, zk, group_id, topic) != ends:
                    await asyncio.sleep(POLL_S)
