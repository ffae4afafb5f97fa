"""ListPartitionReassignments: which partitions the controller is moving, and how."""

from __future__ import annotations

from functools import partial

from broker.controller.controller import Controller
from broker.controller.events import ReassignmentsListed
from broker.network.deferred import Deferred
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponsePartition,
    ListPartitionReassignmentsResponseTopic,
    error_response,
)
from protocol.topic_partition import TopicPartition


def handle(
    controller: Controller,
    deferred: Deferred,
    timeout_ms: int,
    request: ListPartitionReassignmentsRequest,
    context: RequestContext,
) -> Wait:
    """Partitions that are not on the move, or not there, are left out.

    Waits up to `timeout_ms`, not the request's: some clients send 0 there.
    """
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_list(controller, request), timeout_ms, late)


async def _list(
    controller: Controller, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = tuple(
            TopicPartition(topic.name, index)
            for topic in request.topics
            for index in topic.partition_indexes
        )
    moving = await controller.ask(ReassignmentsListed(asked))
    by_topic: dict[str, list[ListPartitionReassignmentsResponsePartition]] = {}
    for partition, (replicas, adding, removing) in moving.items():
        each = ListPartitionReassignmentsResponsePartition(
            partition_index=partition.partition,
            replicas=replicas,
            adding_replicas=adding,
            removing_replicas=removing,
        )
        by_topic.setdefault(partition.topic, []).append(each)
    return ListPartitionReassignmentsResponse(
        topics=[
            ListPartitionReassignmentsResponseTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]
    )
