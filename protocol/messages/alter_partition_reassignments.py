"""AlterPartitionReassignments moves partitions to other brokers, or cancels a move (KIP-455).

There is one version, v0.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@nested
class AlterPartitionReassignmentsRequestPartition:
    """A partition and its new replicas; null replicas cancel its move."""

    partition_index: int = wire(INT32)
    replicas: Sequence[int] | None = wire(Array(INT32), default=None, nullable=0)


@nested
class AlterPartitionReassignmentsRequestTopic:
    """A topic of AlterPartitionReassignmentsRequest."""

    name: str = wire(STRING)
    partitions: Sequence[AlterPartitionReassignmentsRequestPartition] = wire(
        Array(AlterPartitionReassignmentsRequestPartition)
    )


@message(api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class AlterPartitionReassignmentsRequest:
    """Begin or cancel the moves of partitions."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: Sequence[AlterPartitionReassignmentsRequestTopic] = wire(
        Array(AlterPartitionReassignmentsRequestTopic)
    )


@nested
class AlterPartitionReassignmentsResponsePartition:
    """A partition of AlterPartitionReassignmentsResponse."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable=0)


@nested
class AlterPartitionReassignmentsResponseTopic:
    """A topic of AlterPartitionReassignmentsResponse."""

    name: str = wire(STRING)
    partitions: Sequence[AlterPartitionReassignmentsResponsePartition] = wire(
        Array(AlterPartitionReassignmentsResponsePartition)
    )


@message(api=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class AlterPartitionReassignmentsResponse:
    """The result for each partition: NONE once its move has begun."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable=0)
    responses: Sequence[AlterPartitionReassignmentsResponseTopic] = wire(
        Array(AlterPartitionReassignmentsResponseTopic), default=()
    )


def error_response(
    request: AlterPartitionReassignmentsRequest, code: ErrorCode
) -> AlterPartitionReassignmentsResponse:
    """Refuse the whole request."""
    return AlterPartitionReassignmentsResponse(error_code=code, error_message=code.meaning)
