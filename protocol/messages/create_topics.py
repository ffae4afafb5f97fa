"""CreateTopics creates topics (KIP-4).

v1 adds `validate_only` and the error message, v2 the throttle time. v3 adds no field (KIP-219).
From v4 on -1 partitions or replicas mean the broker's defaults (KIP-464). v5 is flexible, and its
response has the numbers and the settings of the topic (KIP-525). v6 adds only
THROTTLING_QUOTA_EXCEEDED (KIP-599), v7 the id of the topic (KIP-516).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.metadata import NO_TOPIC_ID
from protocol.wire import BOOL, INT8, INT16, INT32, STRING, UUID, Array, message, nested, wire


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


@message(api=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+")
class CreateTopicsRequest:
    """Create topics and wait up to `timeout_ms` for their leaders."""

    topics: Sequence[CreateTopicsRequestTopic] = wire(Array(CreateTopicsRequestTopic))
    timeout_ms: int = wire(INT32, default=60000)
    validate_only: bool = wire(BOOL, since=1, default=False)


@nested
class CreateTopicsResponseConfig:
    """A setting of a topic, with the source of its value as in DescribeConfigs."""

    name: str = wire(STRING)
    value: str | None = wire(STRING, nullable=0)
    read_only: bool = wire(BOOL)
    config_source: int = wire(INT8)
    is_sensitive: bool = wire(BOOL)


@nested
class CreateTopicsResponseTopic:
    """A topic of CreateTopicsResponse; -1 and no configs where it is not created."""

    name: str = wire(STRING)
    topic_id: bytes = wire(UUID, since=7, default=NO_TOPIC_ID)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, since=1, default=None, nullable=1)
    num_partitions: int = wire(INT32, since=5, default=-1)
    replication_factor: int = wire(INT16, since=5, default=-1)
    configs: Sequence[CreateTopicsResponseConfig] | None = wire(
        Array(CreateTopicsResponseConfig), since=5, default=(), nullable=5
    )
    # The error that hides the numbers and the configs from the sender.
    topic_config_error_code: int = wire(INT16, since=5, default=0, tag=0)


@message(api=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+")
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
