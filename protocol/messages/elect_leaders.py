"""ElectLeaders elects the preferred leaders of partitions (KIP-183).

v1 adds unclean elections and an error of the whole request (KIP-460), v2 is v1 in the flexible
encoding. A null list of partitions means all partitions.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.special_values import PREFERRED
from protocol.wire import INT8, INT16, INT32, STRING, Array, message, nested, wire


@nested
class ElectLeadersRequestTopicPartitions:
    """A topic of ElectLeadersRequest."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Elect leaders and wait up to `timeout_ms` for the results."""

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


@message(api=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """The result for each partition."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, since=1, default=0)
    replica_election_results: Sequence[ElectLeadersResponseReplicaElectionResult] = wire(
        Array(ElectLeadersResponseReplicaElectionResult)
    )


def error_response(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Return the same error for every partition of `request`."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ElectLeadersResponseReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersResponsePartitionResult(
                        partition_id=partition_id, error_code=code, error_message=code.meaning
                    )
                    for partition_id in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )
