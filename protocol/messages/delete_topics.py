"""DeleteTopics deletes topics (KIP-4).

v1 adds the throttle time. v2 adds no field (KIP-219), v3 only TOPIC_DELETION_DISABLED (KIP-322).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@message(api=ApiKey.DELETE_TOPICS, versions="0-3", flexible="4+")
class DeleteTopicsRequest:
    """Delete topics and wait up to `timeout_ms` for their deletion."""

    topic_names: Sequence[str] = wire(Array(STRING))
    timeout_ms: int = wire(INT32)


@nested
class DeleteTopicsResponseResult:
    """A result of DeleteTopicsResponse."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)


@message(api=ApiKey.DELETE_TOPICS, versions="0-3", flexible="4+")
class DeleteTopicsResponse:
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    responses: Sequence[DeleteTopicsResponseResult] = wire(Array(DeleteTopicsResponseResult))


def error_response(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Return the same error for every topic of `request`."""
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponseResult(name=name, error_code=code) for name in request.topic_names
        ]
    )
