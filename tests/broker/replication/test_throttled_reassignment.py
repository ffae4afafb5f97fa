"""A topic moves under a tight quota while somebody writes to it, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from broker.kbroker.reassign.plan import (
    FOLLOWER_RATE,
    LEADER_RATE,
    Plan,
    plan_throttle,
)
from clients.admin import Admin, NewTopic
from clients.admin.descriptions import ConfigResource
from kgroup import Producer
from kgroup.testing.simulation import CLIENT, Cluster, Faults, simulate
from protocol.topic_partition import TopicPartition

PARTITIONS = 8
BROKERS = (1, 2, 3, 4)
RATE = "100000"
LAG_TIME_S = 10
SETTINGS = {
    "log.flush.interval.messages": "9223372036854775807",
    "log.segment.bytes": "104857600",
    "replica.lag.time.max.ms": str(1000 * LAG_TIME_S),
}


@pytest.mark.fault("strangers-38")
def test_writers_do_not_wait_for_a_replica_that_waits_for_a_quota() -> None:
    """The moved replicas come in sync one after the other, while the quota is exceeded."""

    async def scene(cluster: Cluster, faults: Faults) -> list[float]:
        settings = {**CLIENT, "bootstrap.servers": cluster.bootstrap}
        return await cluster.client("writer").run(lambda: write_and_move(settings))

    waits_s = simulate(scene, seed=8, brokers=len(BROKERS), settings=SETTINGS)
    assert len(waits_s) > 500
    # It was the whole of it, until the replica that waited was out of the ISR again.
    assert max(waits_s) < LAG_TIME_S / 3


async def write_and_move(settings: dict[str, Any]) -> list[float]:
    """Return how long each record had to wait for its acknowledgement."""
    loop = asyncio.get_running_loop()
    waits_s: list[float] = []
    async with Admin(settings) as admin, Producer(settings | {"acks": "all"}) as producer:
        new = NewTopic("t", PARTITIONS, 3)
        assert await admin.create_topics([new]) == {"t": None}
        assert await producer.partitions("t") == PARTITIONS
        described = (await admin.describe_topics(["t"]))["t"]
        current = {
            TopicPartition("t", number): tuple(view.replicas)
            for number, view in described.partitions.items()
        }
        for partition in current:
            for _ in range(40):
                await producer.send("t", bytes(10_000), partition=partition.partition)
        await producer.flush()

        # Each partition loses its leader's replica, and gets one on the broker that has none.
        plan = {
            partition: (*replicas[1:], *set(BROKERS).difference(replicas))
            for partition, replicas in current.items()
        }
        await limit(admin, plan, current)

        async def note(began_s: float, delivery: Awaitable[Any]) -> None:
            await delivery
            waits_s.append(loop.time() - began_s)

        async def write() -> None:
            async with asyncio.TaskGroup() as deliveries:
                for number in range(2000):
                    delivery = await producer.send("t", b"v", partition=number % PARTITIONS)
                    deliveries.create_task(note(loop.time(), delivery))
                    await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as both:
            both.create_task(write())
            await asyncio.sleep(2)
            assert set((await admin.alter_partition_reassignments(plan)).values()) == {None}
    return waits_s


async def limit(admin: Admin, plan: Plan, current: Plan) -> None:
    """Limit the move as `kbroker reassign execute --throttle` does."""
    throttle = plan_throttle(plan, current)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource.broker(broker): {LEADER_RATE: RATE, FOLLOWER_RATE: RATE}
        for broker in throttle.brokers
    }
    for topic, configs in throttle.topic_configs.items():
        changes[ConfigResource.topic(topic)] = dict(configs)
    assert set((await admin.incremental_alter_configs(changes)).values()) == {None}
