"""A topic is deleted and created again while nobody coordinates the groups that consumed it."""

from __future__ import annotations

import asyncio

import pytest

from clients.admin import Admin, NewTopic
from kgroup.testing.simulation.cluster import Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.waiting import until
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.simulation.test_restored_zookeeper import copy_nodes
from zk.api import ZkSession
from zk.znodes import TopicAssignment

GROUP = "g"
AGAIN, OTHER = TopicPartition("again", 0), TopicPartition("other", 0)
HOUR_MS = 3_600_000
MARKED_S, NOT_MARKED_S = 12.0, 0.0
"""The time between a commit and the end of the brokers: a mark is written in between, or not."""
SMALL = {"offsets.topic.num.partitions": "2"}


async def commit(cluster: Cluster, offset: int, *partitions: TopicPartition) -> None:
    async def try_to() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            offsets = dict.fromkeys(partitions, OffsetAndMetadata(offset))
            await admin.commit_group_offsets(GROUP, offsets)
        return True

    await until(try_to, "the offsets are committed", 60, pause_s=0.5, retry_on=(Exception,))


async def committed(cluster: Cluster) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}

    async def read() -> bool:
        async with Admin(cluster.bootstrap) as admin:
            offsets = await admin.group_offsets(GROUP)
        found.update({partition: at.offset for partition, at in offsets.items()})
        return True

    await until(read, "the offsets are read", 60, pause_s=0.5, retry_on=(Exception,))
    return found


async def create_again(zk: ZkSession, topic: str) -> None:
    """Do to the nodes of a topic what its deletion and creation do."""
    path = TopicAssignment.path(topic)
    await zk.delete_recursive(path)
    await zk.create(path, TopicAssignment({0: (1, 2, 3)}).encode())


async def begin(cluster: Cluster) -> ZkSession:
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics(
            [NewTopic(name, assignments={0: [1, 2, 3]}) for name in ("again", "other")]
        )
    return await cluster.open_session()


def set_clocks(cluster: Cluster, clock_ms: int) -> None:
    for node in cluster.nodes:
        node.process.skew_ms = cluster.skews_ms[node.host] = clock_ms


async def stop_all(cluster: Cluster) -> None:
    for node in cluster.nodes:
        node.stop()
    # Their sessions end.
    await asyncio.sleep(30)


def offsets_after(
    *,
    clock_ms: int = 0,
    pause_s: float,
    restored: str | None = None,
    has_ids: bool = True,
    seed: int = 7,
) -> dict[TopicPartition, int]:
    """Return what is committed after one of the two topics was created again with no broker up.

    Or, with `restored`, after a copy of all nodes below that one took their place, without
    `has_ids` one of a time before topics had ids. `clock_ms` is how wrong the clocks of all brokers
    are.
    """

    async def scene(cluster: Cluster, faults: Faults) -> dict[TopicPartition, int]:
        async def operate() -> dict[TopicPartition, int]:
            set_clocks(cluster, clock_ms)
            zk = await begin(cluster)
            await commit(cluster, 42, AGAIN, OTHER)
            await asyncio.sleep(pause_s)
            await stop_all(cluster)
            if restored is not None:
                for topic in () if has_ids else ("again", "other"):
                    assignment = TopicAssignment({0: (1, 2, 3)}).encode()
                    await zk.set(TopicAssignment.path(topic), assignment)
                await copy_nodes(zk, restored)
            else:
                await create_again(zk, "again")
            for node in cluster.nodes:
                node.start()
            return await committed(cluster)

        return await cluster.client("op").run(operate)

    return simulate(scene, seed=seed, settings=SMALL)


@pytest.mark.fault("core-R4")
@pytest.mark.parametrize("clock_ms", [0, HOUR_MS, -HOUR_MS])
def test_offset_that_is_older_than_a_mark_is_of_the_earlier_topic_whatever_the_clocks(
    clock_ms: int,
) -> None:
    assert offsets_after(clock_ms=clock_ms, pause_s=MARKED_S) == {OTHER: 42}


@pytest.mark.fault("core-R4")
def test_offset_committed_just_before_all_brokers_ended_is_told_by_its_time() -> None:
    assert offsets_after(pause_s=NOT_MARKED_S) == {OTHER: 42}


@pytest.mark.fault("core-R4")
@pytest.mark.parametrize("is_committed_again", [False, True])
def test_coordinator_that_hears_of_no_deletion_finds_the_topic_created_again(
    is_committed_again: bool,
) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> dict[TopicPartition, int]:
        async def operate() -> dict[TopicPartition, int]:
            set_clocks(cluster, -HOUR_MS)
            zk = await begin(cluster)
            await commit(cluster, 42, AGAIN, OTHER)
            await asyncio.sleep(MARKED_S)
            # The names are the same as before: no controller has anything to tell.
            await create_again(zk, "again")
            if is_committed_again:
                await commit(cluster, 7, AGAIN)
            await asyncio.sleep(MARKED_S)
            return await committed(cluster)

        return await cluster.client("op").run(operate)

    offsets = {AGAIN: 7, OTHER: 42} if is_committed_again else {OTHER: 42}
    assert simulate(scene, seed=9, settings=SMALL) == offsets


@pytest.mark.fault("core-R4")
@pytest.mark.parametrize("restored", ["", TopicAssignment.directory()])
@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("pause_s", [MARKED_S, NOT_MARKED_S])
def test_no_offset_is_lost_when_zookeeper_or_all_its_topics_were_restored(
    pause_s: float, restored: str, has_ids: bool
) -> None:
    offsets = offsets_after(pause_s=pause_s, restored=restored, has_ids=has_ids)
    assert offsets == {AGAIN: 42, OTHER: 42}


@pytest.mark.parametrize("clock_ms", [0, HOUR_MS, -HOUR_MS])
def test_commit_for_the_new_topic_stays_whatever_the_clocks(clock_ms: int) -> None:
    async def scene(cluster: Cluster, faults: Faults) -> dict[TopicPartition, int]:
        async def operate() -> dict[TopicPartition, int]:
            set_clocks(cluster, clock_ms)
            zk = await begin(cluster)
            await commit(cluster, 42, AGAIN, OTHER)
            await asyncio.sleep(MARKED_S)
            await stop_all(cluster)
            await create_again(zk, "again")
            for node in cluster.nodes:
                node.start()
            assert await committed(cluster) == {OTHER: 42}

            # The same once more, without another deletion.
            await commit(cluster, 7, AGAIN)
            await asyncio.sleep(MARKED_S)
            await stop_all(cluster)
            for node in cluster.nodes:
                node.start()
            return await committed(cluster)

        return await cluster.client("op").run(operate)

    assert simulate(scene, seed=8, settings=SMALL) == {AGAIN: 7, OTHER: 42}
