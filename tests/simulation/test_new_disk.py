"""A broker comes back with an empty disk while nobody but the first leader has led."""

from __future__ import annotations

import asyncio

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from kgroup.testing.simulation.cluster import CLIENT, Cluster
from kgroup.testing.simulation.faults import Faults
from kgroup.testing.simulation.scene import simulate
from kgroup.testing.waiting import until
from protocol.topic_partition import TopicPartition

RECORDS = [b"record %d" % number for number in range(20)]
T0 = TopicPartition("t", 0)


@pytest.mark.fault("stories-1")
def test_acknowledged_records_outlive_the_disk_of_a_follower_and_then_the_first_leader() -> None:
    async def scene(cluster: Cluster, faults: Faults) -> list[bytes]:
        return await cluster.client("op").run(lambda: lose_disk_then_leader(cluster))

    assert simulate(scene, seed=3) == RECORDS


async def lose_disk_then_leader(cluster: Cluster) -> list[bytes]:
    """Empty the disk of broker 2, and stop broker 1, which leads, before anybody else misses it."""
    config = CLIENT | {"bootstrap.servers": cluster.bootstrap}
    leader, follower, _ = cluster.nodes

    async def read() -> list[bytes]:
        async with await SimpleConsumer.for_leader(config, "t", 0) as consumer:
            fetched = await consumer.fetch(FetchRequest("t", 0, 0), max_wait_ms=100)
            return [message.value or b"" for message in fetched]

    async def is_back() -> bool:
        return follower.serving

    async with Admin(cluster.bootstrap) as admin:
        assert (await admin.create_topics([NewTopic("t", assignments={0: [1, 2, 3]})]))["t"] is None
    async with Producer(config | {"acks": "all"}) as producer:
        for record in RECORDS:
            await producer.send_and_wait("t", record)
    assert cluster.partition_states()[T0].leader_epoch == 0

    follower.stop()
    follower.directory = cluster.empty_directory(follower.host)
    follower.start()
    await until(is_back, "broker 2 serves", 60, pause_s=0.1)
    await asyncio.sleep(1)
    leader.stop()

    await until(read, "the partition is led", 60, pause_s=0.5, retry_on=(Exception,))
    return await read()
