"""A broker is killed, and a topic is created again before it is back: real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until
from zk.znodes import TopicAssignment

AGAIN, OTHER = TopicPartition("again", 0), TopicPartition("other", 0)


@pytest.mark.fault("core-R4")
def test_group_has_no_offset_of_a_topic_that_was_created_again_while_its_broker_was_killed(
    tmp_path: Path,
) -> None:
    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic("again", 1, 1), NewTopic("other", 1, 1)])
            offsets = dict.fromkeys((AGAIN, OTHER), OffsetAndMetadata(42))
            await admin.commit_group_offsets("g", offsets)

    async def create_again(cluster: DevCluster) -> None:
        path = TopicAssignment.path("again")
        async with cluster.zookeeper_session() as zk:
            (broker_id,) = TopicAssignment.decode((await zk.get(path))[0], path).partitions[0]
            await zk.delete_recursive(path)
            await zk.create(path, TopicAssignment({0: (broker_id,)}).encode())

    async def read(bootstrap: str) -> dict[TopicPartition, int]:
        async with Admin(bootstrap) as admin:
            offsets = await admin.group_offsets("g")
        return {partition: at.offset for partition, at in offsets.items()}

    with DevCluster(tmp_path / "cluster") as cluster:
        bootstrap = cluster.address("bootstrap")
        asyncio.run(prepare(bootstrap))
        cluster.kill("broker-0")
        asyncio.run(create_again(cluster))

        with cluster.started_again():
            found: list[dict[TopicPartition, int]] = []

            def is_read() -> bool:
                try:
                    found.append(asyncio.run(read(bootstrap)))
                except Exception:
                    return False
                return True

            block_until(is_read, "the group's offsets")
            assert found == [{OTHER: 42}]
