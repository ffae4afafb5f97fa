"""AlterPartitionReassignments: have the controller move partitions, or stop moving them."""

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
    """Answer when the moves have begun; that they have ended is to be seen by listing them.

    That takes no time of the kind `request.timeout_ms` means, and is waited for by `timeout_ms`:
    some clients send 0.
    """
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_alter(controller, request), timeout_ms, late)


async def _alter(
    controller: Controller, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    targets = {
        TopicPartition(topic.name, each.partition_index): (
            None if each.replicas is None else tuple(each.replicas)
        )
        for topic in request.topics
        for each in topic.partitions
    }
    verdicts = await controller.ask(ReassignmentRequested(targets))
    by_topic: dict[str, list[AlterPartitionReassignmentsResponsePartition]] = {}
    for partition, (code, message) in verdicts.items():
        result = AlterPartitionReassignmentsResponsePartition(
            partition_index=partition.partition, error_code=code, error_message=message or None
        )
        by_topic.setdefault(partition.topic, []).append(result)
    return AlterPartitionReassignmentsResponse(
        responses=[
            AlterPartitionReassignmentsResponseTopic(name=topic, partitions=results)
            for topic, results in by_topic.items()
        ]
    )
