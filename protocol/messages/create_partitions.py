"""CreatePartitions adds partitions to topics (KIP-195).

If the assignments are null, the broker places the new partitions. v1 adds no field (KIP-219), v2
is v1 in the flexible encoding, v3 adds only THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, STRING, Array, message, nested, wire


@nested
class CreatePartitionsRequestAssignment:
    """The replicas of one new partition."""

    broker_ids: Sequence[int] = wire(Array(INT32))


@nested
class CreatePartitionsRequestTopic:
    """A topic of CreatePartitionsRequest; `count` includes the partitions it already has."""

    name: str = wire(STRING)
    count: int = wire(INT32)
    assignments: Sequence[CreatePartitionsRequestAssignment] | None = wire(
        Array(CreatePartitionsRequestAssignment), nullable=0
    )


@message(api=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Add partitions and wait up to `timeout_ms` for their leaders."""

    topics: Sequence[CreatePartitionsRequestTopic] = wire(Array(CreatePartitionsRequestTopic))
    timeout_ms: int = wire(INT32)
    validate_only: bool = wire(BOOL)


@nested
class CreatePartitionsResponseResult:
    """A topic of CreatePartitionsResponse."""

    name: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable=0)


@message(api=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """The result for each topic."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[CreatePartitionsResponseResult] = wire(Array(CreatePartitionsResponseResult))


def error_response(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Return the same error for every topic of `request`."""
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsResponseResult(
                name=topic.name, error_code=code, error_message=code.meaning
            )
            for topic in request.topics
        ]
    )
