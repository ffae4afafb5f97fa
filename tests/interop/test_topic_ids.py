"""Ids of topics that our controller has pinned, under controllers of stock Kafka and ours in turn.

A controller before 2.8 reads a topic's node of version 3, and drops the id when it writes the node
again. The topic is the same one all the while: no broker of ours takes its log for another's.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from clients.admin import Admin, NewPartitions, NewTopic
from protocol.topic_partition import TopicPartition
from tests.cluster.load import Load
from tests.cluster.restartable_cluster import play
from tests.interop.handover import BEFORE_IDS, LATEST, NEWEST, OURS
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import MixedCluster, elect, isr
from tests.stage.waiting import until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import ZkSession
from zk.znodes import TopicAssignment

STOCK, OUR_OWN = 0, 1
PARTITIONS = 2


async def node_of(zk: ZkSession, topic: str) -> dict[str, Any]:
    data, _ = await zk.get(TopicAssignment.path(topic))
    return dict(json.loads(data or b"{}"))


async def has_id(zk: ZkSession, topic: str) -> bool:
    return "topic_id" in await node_of(zk, topic)


def copies(directory: Path, partition: TopicPartition) -> set[bytes]:
    """The different logs that the brokers have of a partition."""
    logs = [directory / f"log-{each}" / str(partition) for each in (STOCK, OUR_OWN)]
    assert all(log.is_dir() for log in logs)
    return {b"".join(file.read_bytes() for file in sorted(log.glob("*.log"))) for log in logs}


@pytest.mark.parametrize("release", [BEFORE_IDS, LATEST, NEWEST])
def test_stock_controller_reads_pinned_ids_and_what_it_drops_loses_no_log(
    release: str, zookeeper: str, tmp_path: Path
) -> None:
    topic = unique("t")
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]

    async def scenario(cluster: MixedCluster, zk: ZkSession) -> None:
        await cluster.start_missing()
        await elect(zk, cluster.running, OUR_OWN)
        async with Admin(cluster.bootstrap) as admin:
            created = await admin.create_topics([NewTopic(topic, PARTITIONS, 2)])
            assert created == {topic: None}
        await until_equal(partial(has_id, zk, topic), True)
        pinned = await node_of(zk, topic)
        assert pinned["version"] == 3
        czxid = (await zk.exists(TopicAssignment.path(topic))).czxid  # type: ignore[union-attr]

        async with Load(cluster.bootstrap, topic, pause_s=0.001, group=topic) as load:
            await load.acknowledges(50, 5)

            # A stock controller reads the node, and writes it again.
            await elect(zk, cluster.running, STOCK)
            await load.acknowledges(50, 5)
            async with Admin(cluster.bootstrap) as admin:
                grown = await admin.create_partitions({topic: NewPartitions(PARTITIONS + 1)})
                assert grown == {topic: None}
            added = TopicPartition(topic, PARTITIONS)
            await cluster.in_sync(zk, [*partitions, added])
            await load.acknowledges(50, 5)
            written = await node_of(zk, topic)
            if release == BEFORE_IDS:
                assert "topic_id" not in written
            else:
                assert written.get("topic_id", pinned["topic_id"]) == pinned["topic_id"]

            # Our broker starts while the stock one controls.
            for killed in (False, True):
                await cluster.stop(OUR_OWN, killed=killed)
                await load.acknowledges(20, 2)
                await cluster.start_missing()
                await cluster.in_sync(zk, [*partitions, added])

            # Ours gives the same id again.
            await elect(zk, cluster.running, OUR_OWN)
            await until_equal(partial(has_id, zk, topic), True)
            again = await node_of(zk, topic)
            assert again["topic_id"] == pinned["topic_id"]
            assert len(again["partitions"]) == PARTITIONS + 1
            await load.acknowledges(50, 5)
            await cluster.stop(OUR_OWN)
            await cluster.start_missing()
            await load.acknowledges(50, 5)

        stat = await zk.exists(TopicAssignment.path(topic))
        assert stat is not None
        assert stat.czxid == czxid
        for partition in (*partitions, added):
            await until_equal(partial(isr, zk, partition), {STOCK, OUR_OWN})
            assert len(copies(cluster.directory, partition)) == 1
        await load.assert_kept()
        said = await cluster.stop(OUR_OWN)
        assert "set aside" not in said

    async def whole() -> None:
        makes = {STOCK: release, OUR_OWN: OURS}
        with MixedCluster.of(makes, f"{zookeeper}/{unique('ids')}", tmp_path) as cluster:
            async with zookeeper_session(cluster.zookeeper, create_chroot=True) as zk:
                await scenario(cluster, zk)

    play(whole())
