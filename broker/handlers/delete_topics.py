"""DeleteTopics: have the controller delete topics, and wait until no client can see them.

The logs and the nodes may go later than the answer, when a broker that keeps a replica is down;
until then the names stay taken.
"""

from __future__ import annotations

from functools import partial

from broker.cluster.metadata_cache import MetadataCache
from broker.controller.controller import Controller
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ErrorCode
from protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicsResponseResult,
    error_response,
)

DELETION_DISABLED_SINCE = 3  # the version from which clients know TOPIC_DELETION_DISABLED


def handle(
    controller: Controller,
    cache: MetadataCache,
    delete_topic_enable: bool,
    request: DeleteTopicsRequest,
    context: RequestContext,
) -> DeleteTopicsResponse | Wait:
    """Mark the topics for deletion; those that are marked already are waited for all the same."""
    version = context.api_version
    if not controller.is_active:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    if not delete_topic_enable:
        known = version >= DELETION_DISABLED_SINCE
        code = ErrorCode.TOPIC_DELETION_DISABLED if known else ErrorCode.INVALID_REQUEST
        return error_response(request, code)
    names = tuple(dict.fromkeys(request.topic_names))
    there = tuple(name for name in names if cache.has_topic(name))
    unknown = [
        _result(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in names if name not in there
    ]
    if not there:
        return DeleteTopicsResponse(responses=unknown)
    controller.request_deletion(there)
    keys = tuple(("topic", name) for name in there)
    return Wait(keys, request.timeout_ms, partial(_try_complete, cache, there, unknown))


def _try_complete(
    cache: MetadataCache,
    names: tuple[str, ...],
    unknown: list[DeleteTopicsResponseResult],
    expired: bool,
) -> DeleteTopicsResponse | None:
    left = {name for name in names if cache.has_topic(name)}
    if left and not expired:
        return None
    done = [
        _result(name, ErrorCode.REQUEST_TIMED_OUT if name in left else ErrorCode.NONE)
        for name in names
    ]
    return DeleteTopicsResponse(responses=[*unknown, *done])


def _result(name: str, code: ErrorCode) -> DeleteTopicsResponseResult:
    return DeleteTopicsResponseResult(name=name, error_code=code)
