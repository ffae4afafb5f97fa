"""DeleteTopics: have the controller delete topics, and wait until no client can see them.

Logs and znodes may be deleted after the response, if a broker with a replica is down. Until then
the names stay taken. Topics have no ids here, so a request by ids (v6) finds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.network.dispatch import Outcome
from broker.network.pending_responses import Remaining, respond_or_wait
from broker.network.request_context import RequestContext, refused_topics, take_mutations
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsRequestTopic,
    DeleteTopicsResponse,
    DeleteTopicsResponseResult,
    error_response,
    requested_topics,
)
from protocol.messages.metadata import NO_TOPIC_ID

FIRST_VERSION_OF_DELETION_DISABLED = 3
"""From this version on a client knows TOPIC_DELETION_DISABLED."""
FIRST_VERSION_OF_QUOTAS = 5
"""From this version on a client knows THROTTLING_QUOTA_EXCEEDED."""


def handle(
    controller: Controller,
    cache: MetadataCache,
    delete_topic_enable: bool,
    request: DeleteTopicsRequest,
    context: RequestContext,
) -> Outcome:
    """Mark the topics for deletion. Topics that are marked already are waited for as well."""
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    if not delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST
        if context.api_version >= FIRST_VERSION_OF_DELETION_DISABLED:
            code = ErrorCode.TOPIC_DELETION_DISABLED
        return error_response(request, code)

    # A topic that the sender may not delete is refused, whether or not it exists.
    topics = requested_topics(request)
    names = tuple(dict.fromkeys(_names(topics)))
    refused = refused_topics(context, Operation.DELETE, names)
    failed = []
    existing = []
    for name in names:
        # Without an error that is raised for each: they may be 50,000.
        if name in refused:
            failed.append(_result(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if not cache.has_topic(name):
            failed.append(_result(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        try:
            # It was deleted unheard, and is shown for a while. Nobody would take it out of the
            # metadata, for which the request would wait (fault core-R4).
            if controller.denies(name):
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            take_mutations(context, cache.partition_count(name), FIRST_VERSION_OF_QUOTAS)
            existing.append(name)
        except ApiError as error:
            failed.append(_result(name, error.code))
    failed += [
        DeleteTopicsResponseResult(
            name=None,
            topic_id=topic.topic_id,
            error_code=ErrorCode.UNKNOWN_TOPIC_ID,
            error_message=ErrorCode.UNKNOWN_TOPIC_ID.meaning,
        )
        for topic in topics
        if topic.name is None
    ]
    if not existing:
        return DeleteTopicsResponse(responses=failed)

    # The topics leave the metadata before their last log is deleted.
    controller.request_deletion(existing)
    keys = [("topic", name) for name in existing]
    # A topic is gone for clients when this broker's metadata no longer shows it.
    remaining = Remaining([*existing], lambda name: not cache.has_topic(name))
    try_complete = partial(_try_complete, remaining, existing, failed)
    return respond_or_wait(try_complete, keys, request.timeout_ms)


def _try_complete(
    remaining: Remaining[str],
    names: list[str],
    failed: list[DeleteTopicsResponseResult],
    expired: bool,
) -> DeleteTopicsResponse | None:
    if remaining.has_any() and not expired:
        return None

    left = set(remaining.list_undone())
    marked = [
        _result(name, ErrorCode.REQUEST_TIMED_OUT if name in left else ErrorCode.NONE)
        for name in names
    ]
    return DeleteTopicsResponse(responses=[*failed, *marked])


def _names(topics: Sequence[DeleteTopicsRequestTopic]) -> Iterator[str]:
    """Yield the names of the topics that have one; the others have an id, which no topic has here.

    Raises ApiError for a topic with both or neither.
    """
    for topic in topics:
        if (topic.name is None) == (topic.topic_id == NO_TOPIC_ID):
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "Either the name or the id of a topic must be given."
            )
        if topic.name is not None:
            yield topic.name


def _result(name: str, code: ErrorCode) -> DeleteTopicsResponseResult:
    message = None if code is ErrorCode.NONE else code.meaning
    return DeleteTopicsResponseResult(name=name, error_code=code, error_message=message)
