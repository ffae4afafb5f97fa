"""OffsetCommit: positions to the group's coordinator; answered once they are replicated.

Version 0 is from before there were coordinators: any broker puts it into ZooKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from broker.coordinators.zookeeper_offsets import Committed, ZooKeeperOffsets
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from groups.coordinator.commits import Refused, records_of
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.events import CommitOffsets
from groups.coordinator.responses import Done
from offsets.records import Record
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    error_response,
)
from protocol.topic_partition import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)


def handle(
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperOffsets,
    known_partitions: Callable[[str], Container[int]],
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Outcome:
    """Commit. `known_partitions(topic)` are those of the metadata cache."""
    config = coordinator.config
    records, refused = records_of(
        request, known_partitions, config.metadata_max_bytes, context.now_ms
    )
    if refused:
        logger.debug("group %s, client %s: %s", request.group_id, context.client_id, refused)
    if context.api_version == 0:
        return _commit_to_zookeeper(zookeeper, request, refused)
    if not records and ErrorCode.OFFSET_METADATA_TOO_LARGE not in refused.values():
        return _response(request, refused, ErrorCode.NONE)
    try:
        pending = coordinator.submit(_event(coordinator, request, records))
    except ApiError as error:
        return _response(request, refused, error.code)

    def render(done: list[Done]) -> OffsetCommitResponse:
        return _response(request, refused, done[0].error)

    late = Done(ErrorCode.REQUEST_TIMED_OUT)
    return respond_when_done([pending], config.commit_timeout_ms, late, render)


def _commit_to_zookeeper(
    zookeeper: ZooKeeperOffsets, request: OffsetCommitRequest, refused: Refused
) -> Wait:
    offsets = {
        TopicPartition(topic.name, p.partition_index): OffsetAndMetadata(p.committed_offset)
        for topic in request.topics
        for p in topic.partitions
        if (topic.name, p.partition_index) not in refused
    }

    def answer(codes: Committed) -> OffsetCommitResponse:
        written = {(tp.topic, tp.partition): code for tp, code in codes.items()}
        return _response(request, written | refused, ErrorCode.NONE)

    return zookeeper.commit(request.group_id, offsets, answer)


def _event(
    coordinator: GroupCoordinator, request: OffsetCommitRequest, records: list[Record]
) -> CommitOffsets:
    return CommitOffsets(
        coordinator.next_request_id(),
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        records,
    )


def _response(
    request: OffsetCommitRequest, refused: Refused, others: ErrorCode
) -> OffsetCommitResponse:
    if not refused:
        return error_response(request, others)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=refused.get((topic.name, p.partition_index), others),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
