"""A stock broker and ours hand the coordinator of an open transaction to each other."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from clients.admin import LATEST_TIME, Admin, NewTopic
from clients.cluster import Cluster
from offsets.topic import partition_for
from protocol.internal_topics import TRANSACTIONS_TOPIC
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import play
from tests.interop.handover import LATEST, OURS
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import MixedCluster
from tests.stage.raw_transaction import RawTransaction, run_with_cluster
from tests.stage.waiting import until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import ZkSession

pytestmark = pytest.mark.product

STOCK_ONE, OUR_OWN = 0, 1
STATE_PARTITIONS = 50
"""The number that a stock broker has assumed when it started."""
NAME = "moved"
STATE = TopicPartition(TRANSACTIONS_TOPIC, partition_for(NAME, STATE_PARTITIONS))


async def stable_offsets(admin: Admin, topic: str) -> list[int]:
    """Where readers of committed data stop."""
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    listed = await admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME), isolation=1)
    return [listed[partition].offset for partition in partitions]


@pytest.mark.parametrize("makes", [(OUR_OWN, STOCK_ONE), (STOCK_ONE, OUR_OWN)])
def test_transaction_is_ended_by_a_coordinator_of_the_other_make(
    zookeeper: str, tmp_path: Path, makes: tuple[int, int]
) -> None:
    async def scenario(mixed: MixedCluster, zk: ZkSession, client: Cluster) -> None:
        first, second = makes
        topic = unique("t")
        async with Admin(mixed.bootstrap) as admin:
            state = {number: [OUR_OWN, STOCK_ONE] for number in range(STATE_PARTITIONS)}
            created = await admin.create_topics(
                [
                    NewTopic(topic, assignments={0: [OUR_OWN], 1: [STOCK_ONE]}),
                    NewTopic(
                        TRANSACTIONS_TOPIC,
                        assignments=state,
                        configs={"cleanup.policy": "compact"},
                    ),
                ]
            )
            assert set(created.values()) == {None}
            written = 0
            for commits in (True, False):
                # It begins at one, in a partition of either, and is ended at the other.
                await mixed.lead(zk, [STATE], first)
                producer = await RawTransaction.begin(client, NAME)
                for number in (0, 1):
                    await producer.add(TopicPartition(topic, number))
                    await producer.write(TopicPartition(topic, number), b"v", 1_000)
                assert await stable_offsets(admin, topic) == [written, written]

                await mixed.lead(zk, [STATE], second)
                await producer.end(commits=commits)
                written += 2
                await until_equal(partial(stable_offsets, admin, topic), [written, written])

    async def run() -> None:
        brokers = {STOCK_ONE: LATEST, OUR_OWN: OURS}
        root = f"{zookeeper}/{unique('mixed')}"
        with MixedCluster.of(brokers, root, tmp_path) as mixed:
            await mixed.start_missing()
            async with zookeeper_session(mixed.zookeeper) as zk:
                await run_with_cluster(mixed.bootstrap, partial(scenario, mixed, zk))

    play(run())
