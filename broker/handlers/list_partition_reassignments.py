"""ListPartitionReassignments: list the moves of the controller (KIP-455)."""

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
    """List moves. Partitions that do not move, or do not exist, are left out.

    Wait up to `timeout_ms`, not the request's: some clients send 0.
    """
    late = partial(error_response, request, ErrorCode.REQUEST_TIMED_OUT)
    return deferred.respond(_list(controller, request), timeout_ms, late)


async def _list(
    controller: Controller, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    # Without topics all moves are listed.
    named_partitions = None
    if request.topics is not None:
        named_partitions = tuple(
            TopicPartition(topic.name, partition_id)
            for topic in request.topics
            for partition_id in topic.partition_indexes
        )
    moving = await controller.ask(ReassignmentsListed(named_partitions))

    by_topic: dict[str, list[ListPartitionReassignmentsResponsePartition]] = {}
    for topic_partition, (replicas, adding, removing) in moving.items():
        move = ListPartitionReassignmentsResponsePartition(
            partition_index=topic_partition.partition,
            replicas=replicas,
            adding_replicas=adding,
            removing_replicas=removing,
        )
        by_topic.setdefault(topic_partition.topic, []).append(move)
    return ListPartitionReassignmentsResponse(
        topics=[
            ListPartitionReassignmentsResponseTopic(name=topic, partitions=partitions)
            for topic, partitions in by_topic.items()
        ]
    )
