"""Alter- and ListPartitionReassignments: the controller's replies, as responses."""

from typing import Any

import pytest

from broker.controller.events import ReassignmentRequested, ReassignmentsListed
from broker.handlers import alter_partition_reassignments, list_partition_reassignments
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.broker.asked_controller import AskedController, served

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONTEXT = RequestContext(0, "client", "PLAINTEXT", "1", 0)
TIMEOUT_MS = 20
MOVE = AlterPartitionReassignmentsRequest(
    timeout_ms=0,
    topics=[
        AlterPartitionReassignmentsRequestTopic(
            name="t",
            partitions=[
                AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=(2, 3)),
                AlterPartitionReassignmentsRequestPartition(partition_index=1, replicas=None),
            ],
        )
    ],
)


def alter(controller: AskedController) -> Any:
    return served(
        lambda deferred: alter_partition_reassignments.handle(
            controller.as_controller(), deferred, TIMEOUT_MS, MOVE, CONTEXT
        )
    )


def list_moving(controller: AskedController, *partitions: int) -> Any:
    topic = ListPartitionReassignmentsRequestTopic(name="t", partition_indexes=partitions)
    request = ListPartitionReassignmentsRequest(
        timeout_ms=0, topics=[topic] if partitions else None
    )
    return served(
        lambda deferred: list_partition_reassignments.handle(
            controller.as_controller(), deferred, TIMEOUT_MS, request, CONTEXT
        )
    )


def test_each_partition_has_its_verdict_though_the_client_has_no_time() -> None:
    refused = (ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it is not on the move")
    controller = AskedController({P0: (ErrorCode.NONE, ""), P1: refused})
    (topic,) = alter(controller).responses
    results = [(p.partition_index, p.error_code, p.error_message) for p in topic.partitions]
    assert (topic.name, results) == ("t", [(0, 0, None), (1, 85, "it is not on the move")])
    assert controller.asked == [ReassignmentRequested({P0: (2, 3), P1: None})]


def test_controller_that_does_not_answer_in_time_has_timed_out() -> None:
    assert alter(AskedController()).error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("ask", [alter, list_moving])
def test_only_the_controller_knows(ask: Any) -> None:
    with pytest.raises(ApiError) as refusal:
        ask(AskedController(is_active=False))
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER


def test_what_moves_is_listed_with_what_comes_and_goes() -> None:
    controller = AskedController({P1: ((2, 1), (2,), (1,))})
    (topic,) = list_moving(controller).topics
    (entry,) = topic.partitions
    assert (topic.name, entry.partition_index) == ("t", 1)
    assert (entry.replicas, entry.adding_replicas, entry.removing_replicas) == ((2, 1), (2,), (1,))
    assert controller.asked == [ReassignmentsListed(None)]


def test_some_partitions_may_be_asked_for() -> None:
    controller = AskedController({})
    assert list_moving(controller, 0, 1).topics == []
    assert controller.asked == [ReassignmentsListed((P0, P1))]
