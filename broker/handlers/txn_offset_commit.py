"""TxnOffsetCommit: offsets to the group's coordinator, which count when the transaction commits.

The response waits until they are replicated, like that of OffsetCommit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container

from broker.network.authorization import group, transactional_id
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext, refused_topics, require_authorized
from groups.coordinator.commits import Refused, refused_beside
from groups.coordinator.coordinator import GroupCoordinator
from groups.coordinator.events import CommitInTransaction
from groups.coordinator.responses import Done
from groups.coordinator.transactional_commits import transactional_records_of
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_OF_LOADING = 2
"""Clients of earlier versions may fail for good at COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""

logger = logging.getLogger(__name__)


def handle(
    coordinator: GroupCoordinator,
    known_partitions: Callable[[str], Container[int]],
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> Outcome:
    """Commit. `known_partitions(topic)` are those of the metadata cache. Raises ApiError."""
    require_authorized(context, Operation.WRITE, transactional_id(request.transactional_id))
    require_authorized(context, Operation.READ, group(request.group_id))
    config = coordinator.config

    # Partitions that the sender may not read, or that cannot be committed, get their own errors.
    refused_names = refused_topics(
        context, Operation.READ, (topic.name for topic in request.topics)
    )
    records, refused = transactional_records_of(
        request, known_partitions, refused_names, config.metadata_max_bytes, context.now_ms
    )
    if refused:
        logger.debug("group %s, client %s: %s", request.group_id, context.client_id, refused)
    # As with OffsetCommit the group is asked about metadata that are all too large.
    if not records and ErrorCode.OFFSET_METADATA_TOO_LARGE not in refused.values():
        return _response(request, refused, ErrorCode.NONE)

    def render(responses: list[Done]) -> TxnOffsetCommitResponse:
        (done,) = responses
        return _response(request, refused_beside(refused, done.error), done.error)

    try:
        coordinator.require_group_id(request.group_id)
        coordinator.require_static_members(request.group_instance_id)
        pending = coordinator.submit(
            CommitInTransaction(
                coordinator.next_request_id(),
                request.group_id,
                request.generation_id,
                request.member_id,
                request.group_instance_id,
                records,
                request.producer_id,
                request.producer_epoch,
            )
        )
    except ApiError as error:
        return _response(request, refused, _known_code(error.code, context.api_version))

    late = Done(ErrorCode.REQUEST_TIMED_OUT)
    return respond_when_done([pending], config.commit_timeout_ms, late, render)


def _known_code(code: ErrorCode, api_version: int) -> ErrorCode:
    """Return the error under the code that a client of this version bears."""
    is_loading = code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if is_loading and api_version < FIRST_VERSION_OF_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _response(
    request: TxnOffsetCommitRequest, refused: Refused, code: ErrorCode
) -> TxnOffsetCommitResponse:
    """Return the errors of `refused` for its partitions, and `code` for all others."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=refused.get((topic.name, partition.partition_index), code),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
