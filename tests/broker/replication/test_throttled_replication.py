"""A partition moves to a second broker under a quota."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from clients.transport.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from tests.broker.replication.replicas import batch
from tests.stage.broker import DEADLINE_S, Site, connected
from tests.stage.clock import run_in_own_time
from tests.stage.waiting import until

TOPIC, BROKER = 2, 4
RATE = 100_000  # bytes a second
FETCHED = 10_000  # at a time
SETTINGS = {
    "replica_fetch_max_bytes": str(FETCHED),
    "replica_fetch_response_max_bytes": str(FETCHED),
    "replica_fetch_wait_max_ms": "50",
    "replica_fetch_backoff_ms": "50",
}
BATCH = batch(b"x" * 900)
BATCHES = 200


async def produce(connection: Connection) -> None:
    part = ProduceRequestPartition(index=0, records=BATCH)
    data = [ProduceRequestTopic(name="t", partition_data=[part])]
    answer = await connection.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=data))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def alter(connection: Connection, kind: int, name: str, settings: Mapping[str, str]) -> None:
    configs = [AlterConfigsRequestConfig(name=n, value=v) for n, v in settings.items()]
    resource = AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=configs)
    answer = await connection.call(AlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_message is None


async def create(connection: Connection) -> None:
    """Create the topic with one replica, on broker 1."""
    kept = [CreateTopicsRequestAssignment(partition_index=0, broker_ids=[1])]
    topic = CreateTopicsRequestTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=kept, configs=()
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)

    async def is_made() -> bool:
        code = (await connection.call(request)).topics[0].error_code
        return bool(code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))

    await until(is_made, "the topic is made")


async def move(connection: Connection) -> None:
    """Connect to both brokers."""
    part = AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=[1, 2])
    topic = AlterPartitionReassignmentsRequestTopic(name="t", partitions=[part])
    answer = await connection.call(AlterPartitionReassignmentsRequest(topics=[topic]))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE


async def is_in_sync(connection: Connection) -> bool:
    answer = await connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    return 2 in answer.topics[0].partitions[0].isr_nodes


async def size(connection: Connection) -> int:
    """Return the size of the broker's log in bytes."""
    (directory,) = (await connection.call(DescribeLogDirsRequest(topics=None))).results
    return sum(p.partition_size for topic in directory.topics for p in topic.partitions)


@pytest.mark.parametrize(("role", "listed"), [("leader", "0:1"), ("follower", "0:2")])
def test_what_moves_keeps_to_the_rate_and_what_is_in_sync_is_not_held_back(
    tmp_path: Path, role: str, listed: str
) -> None:
    run_in_own_time(a_move(tmp_path, role, listed), 60)


async def a_move(tmp_path: Path, role: str, listed: str) -> None:
    site, loop = Site(tmp_path), asyncio.get_running_loop()
    async with (
        site.running(1, **SETTINGS) as first,
        connected(first) as one,
        site.running(2, **SETTINGS) as second,
        connected(second) as two,
    ):
        await create(one)
        for _ in range(BATCHES):
            await produce(one)
        await alter(one, TOPIC, "t", {f"{role}.replication.throttled.replicas": listed})
        for connection, name in ((one, "1"), (two, "2")):
            rate = {f"{role}.replication.throttled.rate": str(RATE)}
            await alter(connection, BROKER, name, rate)

        began, began_on_the_clock = loop.time(), time.monotonic()
        await move(one)
        whole, seen = BATCHES * len(BATCH), [0]

        async def is_moved() -> bool:
            seen.append(await size(two))
            return seen[-1] == whole

        await until(is_moved, "it is moved")
        least = (whole - 2 * FETCHED) / RATE
        assert least < time.monotonic() - began_on_the_clock
        assert loop.time() - began < 2 * least + 1
        assert len(set(seen)) > 5  # its progress can be followed

        await until(lambda: is_in_sync(one), "broker 2 is in sync")
        for connection, name in ((one, "1"), (two, "2")):
            await alter(connection, BROKER, name, {f"{role}.replication.throttled.rate": "1"})
        for _ in range(10):
            await asyncio.wait_for(produce(one), DEADLINE_S)
        assert await size(two) == whole + 10 * len(BATCH)
