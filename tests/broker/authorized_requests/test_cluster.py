"""Requests that need a permission of the cluster, or of a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.network.authorization import CLUSTER, Resource, topic, transactional_id
from protocol.acls import Operation
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.messages.controlled_shutdown import ControlledShutdownRequest
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopicPartitions
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from protocol.messages.stop_replica import StopReplicaRequest
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.records.batch import encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from tests.broker.authorized_requests.requests import (
    BROKER_CONFIGS,
    alter_configs,
    describe_configs,
    fetch,
    incremental_alter_configs,
    offset_for_leader_epoch,
    produce,
)
from tests.broker.authorized_requests.stage import (
    CLUSTER_FAILED,
    TOPIC_FAILED,
    TRANSACTION_FAILED,
    Stage,
    errors,
)


def idempotent(*topics: str) -> Any:
    records = encode_batch(
        [(0, None, b"a", ())], producer_id=4000, producer_epoch=0, base_sequence=0
    )
    return produce(*topics, records=records)


def transactional(*topics: str, transaction: str | None = "t") -> Any:
    records = encode_batch(
        [(0, None, b"a", ())],
        producer_id=4000,
        producer_epoch=0,
        base_sequence=0,
        flags=TRANSACTIONAL,
    )
    return produce(*topics, records=records, transaction=transaction)


def follower_fetch(*topics: str) -> Any:
    return fetch(*topics, replica_id=2)


@pytest.mark.parametrize(
    ("build", "operation", "resource", "code"),
    [
        (transactional, Operation.WRITE, transactional_id("t"), TRANSACTION_FAILED),
        (follower_fetch, Operation.CLUSTER_ACTION, CLUSTER, TOPIC_FAILED),
    ],
)
def test_all_topics_are_refused_with_the_cluster_or_the_transaction(
    stage: Stage,
    build: Callable[..., Any],
    operation: Operation,
    resource: Resource,
    code: ErrorCode,
) -> None:
    topics = stage.new_topic(), stage.new_topic()
    refused = errors(stage.call(build(*topics), (operation, resource)))
    assert refused.pop("", ErrorCode.NONE) == ErrorCode.NONE
    assert refused == dict.fromkeys(topics, code)


def test_idempotent_batch_needs_its_topic_alone(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(idempotent(name), (Operation.IDEMPOTENT_WRITE, CLUSTER))
    assert errors(response) == {name: ErrorCode.NONE}


SOMEWHERE = (Operation.WRITE, topic("*"))


def test_producer_id_is_for_those_who_may_write_idempotently_or_to_any_topic(stage: Stage) -> None:
    of_cluster = (Operation.IDEMPOTENT_WRITE, CLUSTER)
    request = InitProducerIdRequest()
    assert stage.call(request, of_cluster).error_code == ErrorCode.NONE
    assert stage.call(request, SOMEWHERE).error_code == ErrorCode.NONE
    assert stage.call(request, of_cluster, SOMEWHERE).error_code == CLUSTER_FAILED


def test_transactional_batch_without_its_id_is_refused(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(transactional(name, transaction=None))
    assert errors(response) == {name: TRANSACTION_FAILED}


def test_follower_needs_no_permission_of_a_topic(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(follower_fetch(name), (Operation.READ, topic(name)))
    assert errors(response)[name] != TOPIC_FAILED


def test_epochs_are_told_with_the_permission_of_the_cluster(stage: Stage) -> None:
    name = stage.new_topic()
    response = stage.call(offset_for_leader_epoch(name), (Operation.DESCRIBE, topic(name)))
    assert errors(response) == {name: ErrorCode.NONE}


@pytest.mark.parametrize(
    ("build", "operation"),
    [
        (describe_configs, Operation.DESCRIBE_CONFIGS),
        (alter_configs, Operation.ALTER_CONFIGS),
        (incremental_alter_configs, Operation.ALTER_CONFIGS),
    ],
)
def test_configs_of_brokers_need_the_cluster(
    stage: Stage, build: Callable[..., Any], operation: Operation
) -> None:
    request = build("1", "", kind=BROKER_CONFIGS)
    refused = stage.call(request, (operation, CLUSTER))
    assert errors(refused) == {"1": CLUSTER_FAILED, "": CLUSTER_FAILED}
    assert errors(stage.call(request)) == {"1": ErrorCode.NONE, "": ErrorCode.NONE}


CONTROL = {"controller_id": 1, "controller_epoch": -1}
WHOLE_REQUESTS = [
    (LeaderAndIsrRequest(**CONTROL, topic_states=[], live_leaders=[]), Operation.CLUSTER_ACTION),
    (StopReplicaRequest(**CONTROL, topics=[]), Operation.CLUSTER_ACTION),
    (
        UpdateMetadataRequest(**CONTROL, topic_states=[], live_brokers=[]),
        Operation.CLUSTER_ACTION,
    ),
    (ControlledShutdownRequest(broker_id=1), Operation.CLUSTER_ACTION),
    (
        AlterPartitionReassignmentsRequest(
            topics=[
                AlterPartitionReassignmentsRequestTopic(
                    name="t",
                    partitions=[AlterPartitionReassignmentsRequestPartition(partition_index=0)],
                )
            ]
        ),
        Operation.ALTER,
    ),
    (ListPartitionReassignmentsRequest(topics=None), Operation.DESCRIBE),
    (
        ElectLeadersRequest(
            topic_partitions=[ElectLeadersRequestTopicPartitions(topic="t", partitions=[0])]
        ),
        Operation.ALTER,
    ),
    (
        AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDirsRequestDir(
                    path="/d", topics=[AlterReplicaLogDirsRequestTopic(name="t", partitions=[0])]
                )
            ]
        ),
        Operation.ALTER,
    ),
]


@pytest.mark.parametrize(
    ("request_", "operation"), WHOLE_REQUESTS, ids=lambda value: type(value).__name__
)
def test_request_about_the_cluster_is_refused_as_a_whole(
    stage: Stage, request_: Any, operation: Operation
) -> None:
    refused = errors(stage.call(request_, (operation, CLUSTER)))
    assert refused
    assert set(refused.values()) == {CLUSTER_FAILED}


def test_log_dirs_without_permission_are_none(stage: Stage) -> None:
    request = DescribeLogDirsRequest(topics=None)
    assert stage.call(request).results
    assert not stage.call(request, (Operation.DESCRIBE, CLUSTER)).results
