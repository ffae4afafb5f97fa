"""OffsetCommit: offsets to the group's coordinator; the response waits until they are replicated.

Version 0 is older than coordinators: any broker writes it to ZooKeeper.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from broker.coordinators.zookeeper_offsets import CommitErrors, ZooKeeperOffsets
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext, refused_topics
from groups.coordinator.commits import Refused, records_of, refused_beside
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.events import CommitOffsets
from groups.coordinator.responses import Done
from offsets.records import Record
from protocol.acls import Operation
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

    # Partitions that the sender may not read, or that cannot be committed, get their own errors.
    refused_names = refused_topics(
        context, Operation.READ, (topic.name for topic in request.topics)
    )
    records, refused = records_of(
        request, known_partitions, refused_names, config.metadata_max_bytes, context.now_ms
    )
    if refused:
        logger.debug("group %s, client %s: %s", request.group_id, context.client_id, refused)
    if context.api_version == 0:
        return _commit_to_zookeeper(zookeeper, request, refused)

    # Kafka asks the group about a commit whose metadata are all too large, but not about others
    # of which nothing is left. One without any is how a reset ends that has nothing to commit.
    has_partitions = bool(request.topics)
    if (
        has_partitions
        and not records
        and ErrorCode.OFFSET_METADATA_TOO_LARGE not in refused.values()
    ):
        return _response(request, refused, ErrorCode.NONE)

    # The coordinator decides and writes; it has responded already if no replica is waited for.
    try:
        coordinator.require_static_members(request.group_instance_id)
        pending = coordinator.submit(_event(coordinator, request, records, context))
    except ApiError as error:
        return _response(request, refused, error.code)

    def render(responses: list[Done]) -> OffsetCommitResponse:
        (done,) = responses
        return _response(request, refused_beside(refused, done.error), done.error)

    late = Done(ErrorCode.REQUEST_TIMED_OUT)
    return respond_when_done([pending], config.commit_timeout_ms, late, render)


def _commit_to_zookeeper(
    zookeeper: ZooKeeperOffsets, request: OffsetCommitRequest, refused: Refused
) -> Wait:
    # Kafka's znode has the offset alone.
    offsets = {
        TopicPartition(topic.name, partition.partition_index): OffsetAndMetadata(
            partition.committed_offset
        )
        for topic in request.topics
        for partition in topic.partitions
        if (topic.name, partition.partition_index) not in refused
    }

    def render(errors: CommitErrors) -> OffsetCommitResponse:
        written = {
            (topic_partition.topic, topic_partition.partition): code
            for topic_partition, code in errors.items()
        }
        return _response(request, written | refused, ErrorCode.NONE)

    return zookeeper.commit(request.group_id, offsets, render)


def _event(
    coordinator: GroupCoordinator,
    request: OffsetCommitRequest,
    records: list[Record],
    context: RequestContext,
) -> CommitOffsets:
    return CommitOffsets(
        coordinator.next_request_id(),
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        records,
        context.connection,
    )


def _response(
    request: OffsetCommitRequest, refused: Refused, code: ErrorCode
) -> OffsetCommitResponse:
    """Return the errors of `refused` for its partitions, and `code` for all others."""
    if not refused:
        return error_response(request, code)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=refused.get((topic.name, partition.partition_index), code),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
