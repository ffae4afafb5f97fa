"""ListPartitionReassignments lists the partitions that are being moved (KIP-455).

A null list of topics means all topics. There is one version, v0.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@nested
class ListPartitionReassignmentsRequestTopic:
    """A topic of ListPartitionReassignmentsRequest."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Ask which of these partitions are being moved."""

    timeout_ms: int = wire(INT32, default=60000)
    topics: Sequence[ListPartitionReassignmentsRequestTopic] | None = wire(
        Array(ListPartitionReassignmentsRequestTopic), default=None, nullable=0
    )


@nested
class ListPartitionReassignmentsResponsePartition:
    """A partition that is being moved: all its replicas, the added and the removed ones."""

    partition_index: int = wire(INT32)
    replicas: Sequence[int] = wire(Array(INT32))
    adding_replicas: Sequence[int] = wire(Array(INT32))
    removing_replicas: Sequence[int] = wire(Array(INT32))


@nested
class ListPartitionReassignmentsResponseTopic:
    """A topic of ListPartitionReassignmentsResponse."""

    name: str = wire(STRING)
    partitions: Sequence[ListPartitionReassignmentsResponsePartition] = wire(
        Array(ListPartitionReassignmentsResponsePartition)
    )


@message(api=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """The partitions that are being moved, and no others."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable=0)
    topics: Sequence[ListPartitionReassignmentsResponseTopic] = wire(
        Array(ListPartitionReassignmentsResponseTopic), default=()
    )


def error_response(
    request: ListPartitionReassignmentsRequest, code: ErrorCode
) -> ListPartitionReassignmentsResponse:
    """Refuse the whole request."""
    return ListPartitionReassignmentsResponse(error_code=code, error_message=code.meaning)
