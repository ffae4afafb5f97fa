"""Partitions move, grow and change their leaders in whole brokers, seen over the wire."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestTopic,
)
from protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersRequestTopicPartitions,
)
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tests.stage.broker import Site, connected
from tests.stage.waiting import until
from zk.znodes import PartitionState, TopicAssignment


def state(site: Site, partition: int = 0) -> PartitionState:
    return PartitionState.decode(site.zookeeper.tree[PartitionState.path("t", partition)].data)


async def create(connection: Connection, *replicas: int) -> None:
    """Create topic "t" with one partition."""
    assigned = CreateTopicsRequestAssignment(partition_index=0, broker_ids=replicas)
    topic = CreateTopicsRequestTopic(
        name="t", num_partitions=-1, replication_factor=-1, assignments=[assigned], configs=()
    )
    response = await call(connection, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert [topic.error_code for topic in response.topics] == [0]


async def call(connection: Connection, request: Any) -> Any:
    name = type(request).__name__.removesuffix("Request")
    key = next(key for key in ApiKey if key.name.replace("_", "") == name.upper())
    return await connection.call(request, version=connection.version_of(key))


async def move(connection: Connection, *replicas: int) -> None:
    partition = AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=replicas)
    topic = AlterPartitionReassignmentsRequestTopic(name="t", partitions=[partition])
    response = await call(connection, AlterPartitionReassignmentsRequest(topics=[topic]))
    assert [p.error_code for t in response.responses for p in t.partitions] == [0]


async def arrived(connection: Connection) -> bool:
    response = await call(connection, ListPartitionReassignmentsRequest())
    return not response.topics


def on_two_brokers(site: Site, scenario: Any) -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as running:
            brokers = [await running.enter_async_context(site.running(id)) for id in (1, 2)]

            async def both_known() -> bool:
                return all(len(broker._cache.brokers) == 2 for broker in brokers)

            await until(both_known, "the brokers know each other")
            connection = await running.enter_async_context(connected(brokers[0]))
            async with asyncio.timeout(25):
                await scenario(connection)

    asyncio.run(run())


def test_partition_moves_to_another_broker_with_its_leader(tmp_path: Path) -> None:
    site = Site(tmp_path)

    async def scenario(connection: Connection) -> None:
        await create(connection, 1)
        await move(connection, 2)
        await until(lambda: arrived(connection), "the partition has arrived")
        after = state(site)
        assert (after.leader, after.isr, after.leader_epoch) == (2, (2,), 3)
        node = TopicAssignment.decode(site.zookeeper.tree[TopicAssignment.path("t")].data)
        assert (node.partitions, node.adding, node.removing) == ({0: (2,)}, {}, {})

        async def log_is_gone() -> bool:
            return not (tmp_path / "logs-1" / "t-0").exists()

        await until(log_is_gone, "the log of the first broker is deleted")
        assert (tmp_path / "logs-2" / "t-0").exists()

    on_two_brokers(site, scenario)


def test_added_partition_is_led_and_preferred_leader_is_elected(tmp_path: Path) -> None:
    site = Site(tmp_path)

    async def scenario(connection: Connection) -> None:
        await create(connection, 1, 2)
        assigned = CreatePartitionsRequestAssignment(broker_ids=(2, 1))
        grown = CreatePartitionsRequestTopic(name="t", count=2, assignments=[assigned])
        response = await call(
            connection,
            CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False),
        )
        assert [result.error_code for result in response.results] == [0]
        assert state(site, 1).leader == 2
        await move(connection, 2, 1)
        await until(lambda: arrived(connection), "the replicas are reordered")
        assert state(site).leader == 1
        topic = ElectLeadersRequestTopicPartitions(topic="t", partitions=[0])
        elected = await call(connection, ElectLeadersRequest(topic_partitions=[topic]))
        (result,) = elected.replica_election_results
        assert [part.error_code for part in result.partition_result] == [0]
        assert state(site).leader == 2

    on_two_brokers(site, scenario)
