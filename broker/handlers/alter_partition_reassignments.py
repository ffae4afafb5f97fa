"""AlterPartitionReassignments: have the controller begin or cancel moves (KIP-455)."""

from __future__ import annotations

from functools import partial

from broker.controller.controller import Controller
from broker.controller.events import ReassignmentRequested
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    AlterPartitionReassignmentsResponsePartition,
    AlterPartitionReassignmentsResponseTopic,
    error_response,
)
from protocol.topic_partition import TopicPartition


def handle(
    controller: Controller,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterPartitionReassignmentsRequest,
    context: RequestContext,
) -> Wait:
    """Respond when the moves have begun; clients list them to see when they have ended.

    Wait up to `timeout_ms`, not the request's: some clients send 0.
    """
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_alter(controller, request), timeout_ms, late)


async def _alter(
    controller: Controller, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    # Without replicas the partition's move is cancelled.
    targets = {
        TopicPartition(topic.name, partition.partition_index): (
            None if partition.replicas is None else tuple(partition.replicas)
        )
        for topic in request.topics
        for partition in topic.partitions
    }
    verdicts = await controller.ask(ReassignmentRequested(targets))

    by_topic: dict[str, list[AlterPartitionReassignmentsResponsePartition]] = {}
    for topic_partition, (code, message) in verdicts.items():
        result = AlterPartitionReassignmentsResponsePartition(
            partition_index=topic_partition.partition,
            error_code=code,
            error_message=message or None,
        )
        by_topic.setdefault(topic_partition.topic, []).append(result)
    return AlterPartitionReassignmentsResponse(
        responses=[
            AlterPartitionReassignmentsResponseTopic(name=topic, partitions=results)
            for topic, results in by_topic.items()
        ]
    )
