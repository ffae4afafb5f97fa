"""Committed offsets on three real brokers, while those who keep them die, hang and change.

One cluster serves all scenarios; each leaves it whole. It begins with an offsets topic of a single
replica, which the first to need more raises to three.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import attrs
import pytest

from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from offsets.requests import commit_request, commit_results
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.cluster.restartable_cluster import (
    POLL_S,
    RestartableCluster,
    create,
    partition_state,
    play,
)
from tests.stage.waiting import DEADLINE_S
from zk.api import ZkSession
from zk.znodes import TopicAssignment

BROKERS = 3
HOME = TopicPartition(OFFSETS_TOPIC, 0)
"""Where all groups are: the topic has one partition."""

SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.commit.timeout.ms": "10000",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartableCluster]:
    directory = tmp_path_factory.mktemp("offsets")
    with RestartableCluster.running(directory, BROKERS, SETTINGS) as cluster:
        yield cluster


def of(partition: TopicPartition, offset: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {partition: OffsetAndMetadata(offset)}


@attrs.define(eq=False)
class Commits:
    """Commits 1, 2, 3 … for a group and reads them back, both without a pause.

    `close` of the block raises where a commit failed, or what was read was older than what had been
    read, or acknowledged, before it was asked for.
    """

    bootstrap: str
    group: str
    partition: TopicPartition
    acknowledged: int = 0
    read: int = 0
    _stopping: bool = False
    _tasks: asyncio.TaskGroup = attrs.field(factory=asyncio.TaskGroup)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._tasks.create_task(self._commit())
        self._tasks.create_task(self._read())
        return self

    async def __aexit__(self, *failure: Any) -> None:
        self._stopping = True
        async with asyncio.timeout(DEADLINE_S):
            await self._tasks.__aexit__(*failure)

    async def more(self, count: int = 20) -> None:
        """Return when so many more are acknowledged, and one of them is read."""
        before = self.acknowledged
        async with asyncio.timeout(DEADLINE_S):
            while self.acknowledged < before + count or self.read <= before:
                await asyncio.sleep(POLL_S)

    async def _commit(self) -> None:
        async with Admin(self.bootstrap) as admin:
            while not self._stopping:
                offset = self.acknowledged + 1
                await admin.commit_group_offsets(self.group, of(self.partition, offset))
                self.acknowledged = offset
                await asyncio.sleep(0.002)

    async def _read(self) -> None:
        async with Admin(self.bootstrap) as admin:
            while not self._stopping:
                at_least = max(self.acknowledged, self.read)
                committed = await admin.group_offsets(self.group)
                self.read = committed[self.partition].offset if committed else 0
                assert self.read >= at_least
                await asyncio.sleep(0.002)


async def coordinator(zk: ZkSession) -> int:
    return (await partition_state(zk, *HOME)).leader


async def next_coordinator(zk: ZkSession, before: int) -> int:
    """Who is elected in its place."""
    async with asyncio.timeout(DEADLINE_S):
        while (now := await coordinator(zk)) in (before, -1):
            await asyncio.sleep(POLL_S)
    return now


async def raise_to_three(cluster: RestartableCluster, zk: ZkSession, directory: Path) -> None:
    """Have every broker keep the offsets, by the command, if they don't already."""
    content, _ = await zk.get(TopicAssignment.path(OFFSETS_TOPIC))
    (replicas,) = TopicAssignment.decode(content).partitions.values()
    others = [each for each in range(BROKERS) if each not in replicas]
    if others:
        move = {"topic": HOME.topic, "partition": HOME.partition, "replicas": [*replicas, *others]}
        plan = directory / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        done = await asyncio.to_thread(
            cluster.dev.run, "kbroker", *("reassign", "execute", str(plan), "--watch", "1")
        )
        assert done.returncode == 0, done.stderr
    await cluster.in_sync(zk)


async def connected_to(admin: Admin, broker: int) -> Connection:
    found = (await admin.describe_cluster()).brokers
    (endpoint,) = [each for each in found if each.node_id == broker]
    return await Connection.open(endpoint.host, endpoint.port)


async def commit_at(
    connection: Connection, group: str, partition: TopicPartition, offset: int
) -> ErrorCode:
    """What this broker itself says to a commit."""
    response = await connection.call(commit_request(group, of(partition, offset)))
    return commit_results(response)[partition]


def test_offsets_raised_from_one_replica_to_three_outlive_their_first_broker(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    topic = TopicPartition("raised", 0)

    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic(topic.topic, 1, BROKERS))
            async with Commits(cluster.bootstrap, "raised", topic) as commits:
                await commits.more()
                first = await coordinator(zk)
                await raise_to_three(cluster, zk, tmp_path)
                await commits.more()
                async with cluster.without(first):
                    await next_coordinator(zk, first)
                    await commits.more()
                await commits.more()
            await cluster.in_sync(zk)

    play(scenario())


def test_coordinator_that_hangs_past_its_session_refuses_what_it_was_asked_meanwhile(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    topic, group, stale = TopicPartition("hung", 0), "hung", 1_000_000
    settings = {"bootstrap.servers": cluster.bootstrap, "request.timeout.ms": 3000}

    async def scenario() -> None:
        async with Admin(settings) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic(topic.topic, 1, BROKERS))
            await admin.commit_group_offsets(group, of(topic, 1))
            await raise_to_three(cluster, zk, tmp_path)
            before = await coordinator(zk)
            old = await connected_to(admin, before)
            async with cluster.stopped(before):
                asked = asyncio.create_task(commit_at(old, group, topic, stale))
                await next_coordinator(zk, before)
                await admin.commit_group_offsets(group, of(topic, 2))
            assert await asked is ErrorCode.NOT_COORDINATOR
            assert await commit_at(old, group, topic, stale) is ErrorCode.NOT_COORDINATOR
            old.abort("done")
            await cluster.in_sync(zk)
            assert await admin.group_offsets(group) == of(topic, 2)

    play(scenario())


def test_commit_with_too_few_in_sync_is_refused_until_they_are_back(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    topic, group = TopicPartition("few", 0), "few"

    def alter(change: str) -> None:
        done = cluster.dev.run(
            "kbroker", "configs", "alter", "--topic", OFFSETS_TOPIC, *change.split()
        )
        assert done.returncode == 0, done.stderr

    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic(topic.topic, 1, BROKERS))
            await admin.commit_group_offsets(group, of(topic, 1))
            await raise_to_three(cluster, zk, tmp_path)
            leader = await coordinator(zk)
            await asyncio.to_thread(alter, "--add min.insync.replicas=3")
            connection = await connected_to(admin, leader)
            async with asyncio.timeout(DEADLINE_S), cluster.without((leader + 1) % BROKERS):
                while len((await partition_state(zk, *HOME)).isr) == BROKERS:
                    await asyncio.sleep(POLL_S)
                while (code := await commit_at(connection, group, topic, 2)) is ErrorCode.NONE:
                    await asyncio.sleep(POLL_S)
                assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await cluster.in_sync(zk)
            await admin.commit_group_offsets(group, of(topic, 3))
            assert await admin.group_offsets(group) == of(topic, 3)
            await asyncio.to_thread(alter, "--delete-config min.insync.replicas")
            connection.abort("done")

    play(scenario())


def test_offsets_of_a_deleted_topic_are_gone_when_it_is_created_again(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    gone, kept, group = TopicPartition("gone", 0), TopicPartition("kept", 0), "deleted"

    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic("gone", 1, 1), NewTopic("kept", 1, 1))
            await admin.commit_group_offsets(group, of(gone, 7) | of(kept, 8))
            await raise_to_three(cluster, zk, tmp_path)
            assert await admin.delete_topics(["gone"]) == {"gone": None}
            async with asyncio.timeout(DEADLINE_S):
                while await zk.exists(TopicAssignment.path("gone")):  # its name is taken until then
                    await asyncio.sleep(POLL_S)
                await create(admin, NewTopic("gone", 2, 1))
                while await admin.group_offsets(group) != of(kept, 8):
                    await asyncio.sleep(POLL_S)
            before = await coordinator(zk)
            async with cluster.without(before):  # it was dropped on all replicas
                await next_coordinator(zk, before)
                assert await admin.group_offsets(group) == of(kept, 8)
            await cluster.in_sync(zk)

    play(scenario())


def test_group_that_was_deleted_stays_so_when_its_coordinator_dies(
    cluster: RestartableCluster, tmp_path: Path
) -> None:
    topic, group = TopicPartition("forgotten", 0), "forgotten"

    async def scenario() -> None:
        async with Admin(cluster.bootstrap) as admin, cluster.dev.zookeeper_session() as zk:
            await create(admin, NewTopic(topic.topic, 1, BROKERS))
            await admin.commit_group_offsets(group, of(topic, 7))
            await raise_to_three(cluster, zk, tmp_path)
            before = await coordinator(zk)
            async with cluster.without(before):
                assert await admin.delete_groups([group]) == {group: None}
                assert await coordinator(zk) != before  # who was asked first
                assert await admin.group_offsets(group) == {}
                await admin.commit_group_offsets(group, of(topic, 3))
                assert await admin.delete_group_offsets(group, [topic]) == {topic: None}
                after = await coordinator(zk)
            await cluster.in_sync(zk)
            async with cluster.without(after):
                await next_coordinator(zk, after)
                assert await admin.group_offsets(group) == {}
            await cluster.in_sync(zk)

    play(scenario())
