"""DeleteTopics deletes topics (KIP-4).

v1 adds the throttle time. v2 adds no field (KIP-219), v3 only TOPIC_DELETION_DISABLED (KIP-322). v4
is v3 in the flexible encoding, v5 adds the error message (KIP-599), v6 names topics by their ids
too (KIP-516).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.metadata import NO_TOPIC_ID
from protocol.wire import INT16, INT32, STRING, UUID, Array, message, nested, wire


@nested
class DeleteTopicsRequestTopic:
    """A topic of DeleteTopicsRequest: its name or its id."""

    name: str | None = wire(STRING, nullable=6)
    topic_id: bytes = wire(UUID, default=NO_TOPIC_ID)


@message(api=ApiKey.DELETE_TOPICS, versions="0-6", sent="0-5", flexible="4+")
class DeleteTopicsRequest:
    """Delete topics and wait up to `timeout_ms` for their deletion.

    Our clients name them, and know no ids.
    """

    topics: Sequence[DeleteTopicsRequestTopic] = wire(
        Array(DeleteTopicsRequestTopic), since=6, default=()
    )
    topic_names: Sequence[str] = wire(Array(STRING), until=5, default=())
    timeout_ms: int = wire(INT32)


@nested
class DeleteTopicsResponseResult:
    """A result of DeleteTopicsResponse."""

    name: str | None = wire(STRING, nullable=6)
    topic_id: bytes = wire(UUID, since=6, default=NO_TOPIC_ID)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=5, default=None, nullable=5)


@message(api=ApiKey.DELETE_TOPICS, versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    responses: Sequence[DeleteTopicsResponseResult] = wire(Array(DeleteTopicsResponseResult))


def error_response(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Return the same error for every topic of `request`."""
    return DeleteTopicsResponse(
        responses=[
            DeleteTopicsResponseResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=code,
                error_message=code.meaning,
            )
            for topic in requested_topics(request)
        ]
    )


def requested_topics(request: DeleteTopicsRequest) -> Sequence[DeleteTopicsRequestTopic]:
    """Return the topics of a request of any version."""
    named = [DeleteTopicsRequestTopic(name=name) for name in request.topic_names]
    return [*named, *request.topics]
