"""OffsetDelete: forget what a group has committed for some partitions; answered once that is
replicated."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.responses import Done
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
    asked = [
        TopicPartition(t.name, p.partition_index) for t in request.topics for p in t.partitions
    ]
    known = [tp for tp in asked if tp.partition in known_partitions(tp.topic)]
    unknown = dict.fromkeys(set(asked).difference(known), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        pending = coordinator.delete_offsets(request.group_id, known)
    except ApiError as error:
        return error_response(request, error.code)

    def render(done: list[Done]) -> OffsetDeleteResponse:
        if done[0].error:
            return error_response(request, done[0].error)
        return _response(request, {**unknown, **done[0].refused})

    late = Done(ErrorCode.REQUEST_TIMED_OUT)
    return respond_when_done([pending], coordinator.config.commit_timeout_ms, late, render)


def _response(
    request: OffsetDeleteRequest, refused: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=p.partition_index,
                        error_code=refused.get(
                            TopicPartition(topic.name, p.partition_index), ErrorCode.NONE
                        ),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
