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
@pytest.mark.parametrize("is_put_back", [False, True])
def test_group_has_no_offset_of_a_topic_that_was_created_again_while_its_broker_was_killed(
    tmp_path: Path, is_put_back: bool
) -> None:
    """It has one of a topic whose node was deleted by mistake, and put back as it was."""

    async def prepare(bootstrap: str) -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topics([NewTopic("again", 1, 1), NewTopic("other", 1, 1)])
            offsets = dict.fromkeys((AGAIN, OTHER), OffsetAndMetadata(42))
            await admin.commit_group_offsets("g", offsets)

    async def create_again(cluster: DevCluster) -> None:
        path = TopicAssignment.path("again")
        async with cluster.zookeeper_session() as zk:
            data, _ = await zk.get(path)
            (broker_id,) = TopicAssignment.decode(data, path).partitions[0]
            await zk.delete_recursive(path)
            await zk.create(
                path, data if is_put_back else TopicAssignment({0: (broker_id,)}).encode()
            )

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
            assert found == [{AGAIN: 42, OTHER: 42} if is_put_back else {OTHER: 42}]
