"""What groups in ZooKeeper cost, by the number of members, topics, partitions and groups."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from clients.admin import Admin
from clients.command_line.sessions import Sessions
from clients.groups.group_reader import GroupReader
from clients.high_level.connector import ConsumerConnector
from groups.zookeeper.deletion import delete_group
from groups.zookeeper.filters import Whitelist
from kgroup.testing.waiting import until
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.scale.stage import GROUP, TOPIC, Row, Stage
from zk.znodes import ConsumerGroup, ConsumerRegistration, PartitionOwner

MANY_MEMBERS = (10, 100, 1_000)
FEW_MEMBERS = (5, 50)
SESSION_MS = 60_000


async def connect(stage: Stage, number: int = 0, **settings: Any) -> ConsumerConnector:
    """Return a member with a session of its own."""
    session = await stage.cluster.open_session(timeout_ms=SESSION_MS)
    stage.kept.append(session)
    values = stage.bootstrap | {
        "group.id": GROUP,
        "consumer.id": f"member-{number:05}",
        "zookeeper.connect": "zk:2181",
        "auto.offset.reset": "smallest",
        "auto.commit.enable": "false",
        "offsets.storage": "zookeeper",
        "fetch.wait.max.ms": 10_000,
        **settings,
    }
    return ConsumerConnector(values, zk=session)


async def close(stage: Stage, connectors: Sequence[ConsumerConnector]) -> None:
    """Have members leave, and end their sessions."""
    await asyncio.gather(*(connector.shutdown() for connector in connectors))
    for session in stage.kept:
        await session.close()
    stage.kept.clear()


async def owners(stage: Stage, topic: str = TOPIC) -> list[str]:
    """Return the partitions of a topic that have owners."""
    session = await stage.cluster.open_session()
    try:
        directory = PartitionOwner.path(GROUP, topic, 0).rpartition("/")[0]
        if await session.exists(directory) is None:
            return []
        names, _ = await session.children(directory)
        return list(names)
    finally:
        await session.close()


# ---- preparations


async def make_partitions(stage: Stage) -> None:
    """Make the partitions."""
    await stage.create_partitions()


async def make_topics(stage: Stage) -> None:
    """Make the topics."""
    await stage.create_topics()


async def make_strangers(stage: Stage) -> None:
    """Make the partitions, and members that another program has registered."""
    await stage.create_partitions()
    session = await stage.cluster.open_session(timeout_ms=SESSION_MS)
    registration = ConsumerRegistration({TOPIC: 1}, "static", timestamp_ms=0).encode()
    for number in range(stage.size):
        path = ConsumerRegistration.path(GROUP, f"{GROUP}_stranger-{number:05}")
        await session.create(path, registration, ephemeral=True, make_parents=True)


async def make_owner(stage: Stage) -> None:
    """Make a member that owns all partitions, and one that waits."""
    await stage.create_partitions()
    for number in range(2):
        connector = await connect(stage, number)
        await connector.create_message_streams({TOPIC: 1})
        stage.kept.append(connector)


async def make_old_groups(stage: Stage) -> None:
    """Make groups with a member and an offset, all in ZooKeeper."""
    session = await stage.cluster.open_session(timeout_ms=SESSION_MS)
    await Stage(stage.cluster, 1, stage.connections).create_partitions()
    registration = ConsumerRegistration({TOPIC: 1}, "static", timestamp_ms=0).encode()
    partition = TopicPartition(TOPIC, 0)
    store = ZooKeeperStore(session)
    for group_id in stage.groups:
        member = f"{group_id}_member"
        path = ConsumerRegistration.path(group_id, member)
        await session.create(path, registration, ephemeral=True, make_parents=True)
        owner = PartitionOwner.path(group_id, TOPIC, 0)
        await session.create(owner, f"{member}-0".encode(), ephemeral=True, make_parents=True)
        await store.commit(group_id, {partition: OffsetAndMetadata(0)})


async def make_empty_groups(stage: Stage) -> None:
    """Make groups of which offsets are left in ZooKeeper."""
    session = await stage.cluster.open_session(timeout_ms=SESSION_MS)
    store = ZooKeeperStore(session)
    for group_id in stage.groups:
        await session.ensure_path(ConsumerGroup.ids_path(group_id))
        await store.commit(group_id, {TopicPartition(TOPIC, 0): OffsetAndMetadata(0)})


# ---- members


async def join_strangers(stage: Stage) -> None:
    """Join a group that has many members, and leave it."""
    connector = await connect(stage)
    await connector.create_message_streams({TOPIC: 1})
    await close(stage, [connector])


async def join_many(stage: Stage) -> None:
    """Have many members join, each in a process of its own, share all partitions, and leave."""
    members = [stage.cluster.client(f"member-{number:05}") for number in range(stage.size)]
    joins = (process.run(partial(join, stage, number)) for number, process in enumerate(members))
    connectors = await asyncio.gather(*joins)

    async def are_shared() -> bool:
        return len(await owners(stage)) == stage.size

    await until(are_shared, "all partitions have owners", pause_s=1.0)
    leaves = zip(members, connectors, strict=True)
    await asyncio.gather(*(process.run(connector.shutdown) for process, connector in leaves))
    await close(stage, [])


async def join(stage: Stage, number: int) -> ConsumerConnector:
    """Have a member join, in the process that calls."""
    connector = await connect(stage, number)
    await connector.create_message_streams({TOPIC: 1})
    return connector


async def consume_topics(stage: Stage) -> None:
    """Join with a filter that all topics match, and leave."""
    connector = await connect(stage)
    await connector.create_message_streams_by_filter(Whitelist("t-.*"), 1)
    await close(stage, [connector])


async def take_over(stage: Stage) -> None:
    """Have one of two members leave: the other one takes its partitions over."""
    first, second = (kept for kept in stage.kept if isinstance(kept, ConsumerConnector))
    await first.shutdown()

    async def are_owned() -> bool:
        return len(await owners(stage)) == stage.size

    await until(are_owned, "all partitions have owners", pause_s=1.0)
    stage.kept = [kept for kept in stage.kept if not isinstance(kept, ConsumerConnector)]
    await close(stage, [second])


async def commit_each(stage: Stage) -> None:
    """Commit an offset of each partition, and read it back."""
    session = await stage.cluster.open_session()
    store = ZooKeeperStore(session)
    offsets = dict.fromkeys(stage.partitions, OffsetAndMetadata(1))
    await store.commit(GROUP, offsets)
    assert len(await store.fetch(GROUP, stage.partitions)) == stage.size
    await session.close()


# ---- tools


async def read_groups(stage: Stage) -> None:
    """Read all groups, as `list` and `describe` do."""
    session = await stage.cluster.open_session()
    async with Admin(stage.bootstrap) as admin:
        reader = GroupReader(Sessions(admin, session))
        names = [name.group for name in await reader.names()]
        facts = await reader.groups(names)
    assert (len([group for group in facts if group.members]), reader.failures) == (stage.size, [])
    await session.close()


async def delete_groups(stage: Stage) -> None:
    """Delete all groups, as `delete` does."""
    session = await stage.cluster.open_session()
    for group_id in stage.groups:
        assert await delete_group(session, group_id)
    await session.close()


ZOOKEEPER_ROWS = (
    Row("a member in ZooKeeper joins many members", join_strangers, make_strangers),
    Row(
        "members join in ZooKeeper, each of them",
        join_many,
        make_partitions,
        of_each=True,
        sizes=MANY_MEMBERS,
        small=FEW_MEMBERS,
    ),
    Row("a member in ZooKeeper consumes many topics", consume_topics, make_topics),
    Row("partitions are taken over in ZooKeeper", take_over, make_owner),
    Row("offsets of all partitions in ZooKeeper", commit_each, make_partitions),
    Row("groups in ZooKeeper are read by a tool", read_groups, make_old_groups),
    Row("groups in ZooKeeper are deleted", delete_groups, make_empty_groups),
)
