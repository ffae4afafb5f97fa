"""ElectLeaders (KIP-183; v1: unclean elections too, and a top-level error, KIP-460).

A null list of partitions means all.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, STRING, Array, message, nested, wire

PREFERRED, UNCLEAN = 0, 1  # election types


@nested
class ElectLeadersRequestTopicPartitions:
    """A topic of ElectLeadersRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.ELECT_LEADERS, versions="0-1", flexible="2+")
class ElectLeadersRequest:
    """Elect leaders, and wait up to `timeout_ms` until they are known."""

    election_type: int = wire(INT8, since=1, default=PREFERRED)
    topic_partitions: Sequence[ElectLeadersRequestTopicPartitions] | None = wire(
        Array(ElectLeadersRequestTopicPartitions), nullable=0
    )
    timeout_ms: int = wire(INT32, default=60000)


@nested
class ElectLeadersResponsePartitionResult:
    """A partition of ElectLeadersResponse."""

    partition_id: int = wire(INT32)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)


@nested
class ElectLeadersResponseReplicaElectionResult:
    """A topic of ElectLeadersResponse."""

    topic: str = wire(STRING)
    partition_result: Sequence[ElectLeadersResponsePartitionResult] = wire(
        Array(ElectLeadersResponsePartitionResult)
    )


@message(api=ApiKey.ELECT_LEADERS, versions="0-1", flexible="2+")
class ElectLeadersResponse:
    """Per partition, how its election came out."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=1, default=0)
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResult] = wire(
        Array(ElectLeadersResponseReplicaElectionResult)
    )


def error_response(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """The answer that gives every partition of `request` the same error."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ElectLeadersResponseReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponsePartitionResult(
                        partition_id=each, error_code=code, error_message=code.meaning
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
