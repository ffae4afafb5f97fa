"""OffsetDelete: delete what a group has committed for some partitions (KIP-496).

The response waits until the deletion is replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext, refused_topics
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.responses import Done
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    error_response,
)
from protocol.topic_partition import TopicPartition


def handle(
    coordinator: GroupCoordinator,
    known_partitions: Callable[[str], Container[int]],
    request: OffsetDeleteRequest,
    context: RequestContext,
) -> Outcome:
    """Delete. `known_partitions(topic)` are those of the metadata cache."""
    if not request.group_id:
        return error_response(request, ErrorCode.INVALID_GROUP_ID)

    # Partitions that the sender may not read, or that do not exist, get their own errors.
    names = (topic.name for topic in request.topics)
    refused = refused_topics(context, Operation.READ, names)
    allowed: list[TopicPartition] = []
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        existing = known_partitions(topic.name)
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if topic.name in refused:
                errors[topic_partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif partition.partition_index not in existing:
                errors[topic_partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                allowed.append(topic_partition)

    # The rest is up to the group: it may still subscribe to topics.
    try:
        pending = coordinator.delete_offsets(request.group_id, allowed)
    except ApiError as error:
        return error_response(request, error.code)

    def render(responses: list[Done]) -> OffsetDeleteResponse:
        (done,) = responses
        # The group refuses all, or single partitions.
        if done.error:
            return error_response(request, done.error)
        return _response(request, {**errors, **done.refused})

    late = Done(ErrorCode.REQUEST_TIMED_OUT)
    return respond_when_done([pending], coordinator.config.commit_timeout_ms, late, render)


def _response(
    request: OffsetDeleteRequest, errors: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, partition.partition_index), ErrorCode.NONE
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
