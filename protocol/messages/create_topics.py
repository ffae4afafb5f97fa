"""CreateTopics creates topics (KIP-4).

v1 adds `validate_only` and the error message, v2 the throttle time. v3 adds no field (KIP-219).
From v4 on -1 partitions or replicas mean the broker's defaults (KIP-464).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, STRING, Array, message, nested, wire


@nested
class CreateTopicsRequestAssignment:
    """An assignment of CreateTopicsRequest."""

    partition_index: int = wire(INT32)
    broker_ids: Sequence[int] = wire(Array(INT32))


@nested
class CreateTopicsRequestConfig:
    """A config of CreateTopicsRequest."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)


@nested
class CreateTopicsRequestTopic:
    """A topic of CreateTopicsRequest."""

    name: str = wire(STRING)
    num_partitions: int = wire(INT32)
    replication_factor: int = wire(INT16)
    assignments: Sequence[CreateTopicsRequestAssignment] = wire(
        Array(CreateTopicsRequestAssignment)
    )
    configs: Sequence[CreateTopicsRequestConfig] = wire(Array(CreateTopicsRequestConfig))


@message(api=ApiKey.CREATE_TOPICS, versions="0-4", flexible="5+")
class CreateTopicsRequest:
    """Create topics and wait up to `timeout_ms` for their leaders."""

    topics: Sequence[CreateTopicsRequestTopic] = wire(Array(CreateTopicsRequestTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, since=1, default=False)


@nested
class CreateTopicsResponseTopic:
    """A topic of CreateTopicsResponse."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, default=None, nullable=1)


@message(api=ApiKey.CREATE_TOPICS, versions="0-4", flexible="5+")
class CreateTopicsResponse:
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    topics: Sequence[CreateTopicsResponseTopic] = wire(Array(CreateTopicsResponseTopic))


def error_response(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Return the same error for every topic of `request`."""
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponseTopic(name=topic.name, error_code=code, error_message=code.meaning)
            for topic in request.topics
        ]
    )
