"""What a stock broker refuses, ours refuses in the same words: code and message, side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from broker.settings.config_alteration import AlterOperation
from clients.admin import Admin, NewTopic
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
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsRequestAssignment,
    CreatePartitionsRequestTopic,
)
from protocol.messages.create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestAssignment,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from tests.stage.cluster import DevCluster
from tests.stage.stock_kafka import stock_broker

TOPIC, BROKER = 2, 4
SET, _, APPEND, _ = AlterOperation
GONE = 99
"""A broker that is not there."""


@pytest.fixture(scope="module")
def stock(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tree = f"{zookeeper}/words-{uuid4().hex[:8]}"
    with stock_broker(tree, tmp_path_factory.mktemp("stock")) as bootstrap:
        yield bootstrap


# --- requests about the topic `t`, by what is wrong with them


def create(t: str, *replicas: int, partitions: int = -1, factor: int = -1, **configs: Any) -> Any:
    topic = CreateTopicsRequestTopic(
        name=t,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreateTopicsRequestAssignment(partition_index=0, broker_ids=replicas)]
        if replicas
        else [],
        configs=[
            CreateTopicsRequestConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ],
    )
    return CreateTopicsRequest(topics=[topic], validate_only=True)


def grow(t: str, count: int, *assigned: list[int]) -> Any:
    topic = CreatePartitionsRequestTopic(
        name=t,
        count=count,
        assignments=[CreatePartitionsRequestAssignment(broker_ids=each) for each in assigned]
        or None,
    )
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=True)


def alter(kind: int, name: str, **configs: str | None) -> Any:
    resource = AlterConfigsRequestResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterConfigsRequestConfig(name=each.replace("_", "."), value=value)
            for each, value in configs.items()
        ],
    )
    return AlterConfigsRequest(resources=[resource], validate_only=True)


def change(t: str, *changes: tuple[str, int, str | None]) -> Any:
    resource = IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC,
        resource_name=t,
        configs=[
            IncrementalAlterConfigsRequestConfig(name=name, config_operation=operation, value=value)
            for name, operation, value in changes
        ],
    )
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def describe(kind: int, name: str) -> Any:
    resource = DescribeConfigsRequestResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def reassign(t: str, partition: int, replicas: list[int] | None) -> Any:
    moved = AlterPartitionReassignmentsRequestPartition(
        partition_index=partition, replicas=replicas
    )
    topic = AlterPartitionReassignmentsRequestTopic(name=t, partitions=[moved])
    return AlterPartitionReassignmentsRequest(topics=[topic])


def elect(t: str, partition: int) -> Any:
    topic = ElectLeadersRequestTopicPartitions(topic=t, partitions=[partition])
    return ElectLeadersRequest(topic_partitions=[topic], timeout_ms=10_000)


# Not among them: AlterConfigs with a null, at which 2.8.2 stumbles (UNKNOWN_SERVER_ERROR).
REFUSED: Mapping[str, Callable[[str], Any]] = {
    "topic there": lambda t: create(t),
    "topic without name": lambda t: create(""),
    "topic named ..": lambda t: create(".."),
    "topic named illegally": lambda t: create("a b"),
    "topic named too long": lambda t: create("x" * 250),
    "no partitions": lambda t: create(f"{t}-new", partitions=0, factor=1),
    "no replicas": lambda t: create(f"{t}-new", partitions=1, factor=0),
    "too many replicas": lambda t: create(f"{t}-new", partitions=1, factor=5),
    "replicas and their number": lambda t: create(f"{t}-new", 0, partitions=1, factor=1),
    "new: null": lambda t: create(f"{t}-new", retention_ms=None),
    "new: unknown": lambda t: create(f"{t}-new", retention_millis="1"),
    "new: too small": lambda t: create(f"{t}-new", segment_bytes="13"),
    "new: too large for its type": lambda t: create(f"{t}-new", segment_bytes="2147483648"),
    "new: lags": lambda t: create(f"{t}-new", min_compaction_lag_ms="5", max_compaction_lag_ms="3"),
    "as many partitions": lambda t: grow(t, 2),
    "fewer partitions": lambda t: grow(t, 1),
    "partitions of no topic": lambda t: grow(f"{t}-none", 3),
    "partitions on no broker": lambda t: grow(t, 3, [GONE]),
    "partitions without assignment": lambda t: grow(t, 4, [0]),
    "partitions without replicas": lambda t: grow(t, 3, []),
    "partitions twice on a broker": lambda t: grow(t, 3, [0, 0]),
    "alter: unknown": lambda t: alter(TOPIC, t, retention_millis="1"),
    "alter: no LONG": lambda t: alter(TOPIC, t, retention_ms="soon"),
    "alter: too small": lambda t: alter(TOPIC, t, retention_ms="-2"),
    "alter: no BOOLEAN": lambda t: alter(TOPIC, t, preallocate="yes"),
    "alter: no DOUBLE": lambda t: alter(TOPIC, t, min_cleanable_dirty_ratio="half"),
    "alter: too large": lambda t: alter(TOPIC, t, min_cleanable_dirty_ratio="1.5"),
    "alter: no word of a list": lambda t: alter(TOPIC, t, cleanup_policy="delete,burn"),
    "alter: no word": lambda t: alter(TOPIC, t, compression_type="brotli"),
    "alter: no time": lambda t: alter(TOPIC, t, message_timestamp_type="Now"),
    "alter: no version": lambda t: alter(TOPIC, t, message_format_version="9.9"),
    "alter: no replicas": lambda t: alter(TOPIC, t, leader_replication_throttled_replicas="0:1,2"),
    "alter: no topic": lambda t: alter(TOPIC, f"{t}-none", retention_ms="1"),
    "alter: another broker": lambda t: alter(BROKER, str(GONE), log_retention_ms="1"),
    "alter: no number of a broker": lambda t: alter(BROKER, "x", log_retention_ms="1"),
    "alter: of brokers, static": lambda t: alter(BROKER, "0", broker_id="7"),
    "alter: of brokers, no INT": lambda t: alter(BROKER, "0", log_segment_bytes="x"),
    "alter: of brokers, too small": lambda t: alter(
        BROKER, "0", leader_replication_throttled_rate="-1"
    ),
    "alter: no kind": lambda t: alter(3, t),
    "change: null": lambda t: change(t, ("retention.ms", SET, None)),
    "change: twice": lambda t: change(t, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    "change: no list": lambda t: change(t, ("retention.ms", APPEND, "1")),
    "describe: no topic": lambda t: describe(TOPIC, f"{t}-none"),
    "describe: illegal topic": lambda t: describe(TOPIC, ".."),
    "describe: another broker": lambda t: describe(BROKER, str(GONE)),
    "describe: no number of a broker": lambda t: describe(BROKER, "x"),
    "describe: no kind": lambda t: describe(3, t),
    "reassign: nothing to stop": lambda t: reassign(t, 0, None),
    "reassign: no replicas": lambda t: reassign(t, 0, []),
    "reassign: no partition": lambda t: reassign(t, 9, [0]),
    "elect: not needed": lambda t: elect(t, 0),
    "elect: no partition": lambda t: elect(t, 9),
}


def verdicts(answer: Any) -> list[tuple[str, str | None]]:
    """Of an answer, or of the one part of it that has a verdict."""
    for parts in ("topics", "results", "responses", "replica_election_results"):
        if hasattr(answer, parts):
            found = [each for part in getattr(answer, parts) for each in verdicts(part)]
            return found or [told(answer)]
    for parts in ("partitions", "partition_result"):
        if hasattr(answer, parts):
            return [told(each) for each in getattr(answer, parts)]
    return [told(answer)]


def told(part: Any) -> tuple[str, str | None]:
    return ErrorCode.of(part.error_code).name, part.error_message


async def refusals(bootstrap: str) -> dict[str, list[tuple[str, str | None]]]:
    """What a broker with the id 0 says to each, of a topic with two partitions."""
    topic = f"t-{uuid4().hex[:8]}"
    host, _, port = bootstrap.rpartition(":")
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(topic, 2, 1)]) == {topic: None}
    connection = await Connection.open(host, int(port))
    try:
        return {
            what: [
                (code, message and message.replace(topic, "t"))
                for code, message in verdicts(await connection.call(request(topic)))
            ]
            for what, request in REFUSED.items()
        }
    finally:
        await connection.close()


@pytest.fixture(scope="module")
def both(stock: str, dev_cluster: DevCluster) -> tuple[dict[str, Any], dict[str, Any]]:
    ours = asyncio.run(refusals(dev_cluster.address("bootstrap")))
    return ours, asyncio.run(refusals(stock))


@pytest.mark.parametrize("what", REFUSED)
def test_ours_refuses_in_the_words_of_a_stock_broker(
    what: str, both: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    ours, stocks = both
    assert ours[what] == stocks[what]
