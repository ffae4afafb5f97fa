"""StopReplica tells a broker to stop replicas, and to delete them if the controller wants it.

v1 adds the broker epoch (KIP-380) and groups the partitions by topic.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, Array, message, nested, wire


@nested
class StopReplicaRequestUngroupedPartition:
    """An ungrouped partition of StopReplicaRequest."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)


@nested
class StopReplicaRequestTopic:
    """A topic of StopReplicaRequest."""

    name: str = wire(STRING)
    partition_indexes: Sequence[int] = wire(Array(INT32))


@message(api=ApiKey.STOP_REPLICA, versions="0-1", flexible="2+")
class StopReplicaRequest:
    """Stop leading or following; with `delete_partitions` also delete the logs."""

    controller_id: int = wire(INT32)
    controller_epoch: int = wire(INT32)
    # czxid of the broker's znode: a request for the broker's former session is refused.
    broker_epoch: int = wire(INT64, since=1, default=-1)
    delete_partitions: bool = wire(BOOL, until=2, default=False)
    ungrouped_partitions: Sequence[StopReplicaRequestUngroupedPartition] = wire(
        Array(StopReplicaRequestUngroupedPartition), until=0, default=()
    )
    topics: Sequence[StopReplicaRequestTopic] = wire(
        Array(StopReplicaRequestTopic), since=1, until=2, default=()
    )


@nested
class StopReplicaResponsePartitionError:
    """A partition error of StopReplicaResponse."""

    topic_name: str = wire(STRING)
    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@message(api=ApiKey.STOP_REPLICA, versions="0-1", flexible="2+")
class StopReplicaResponse:
    """The result for each partition."""

    error_code: int = wire(INT16)
    partition_errors: Sequence[StopReplicaResponsePartitionError] = wire(
        Array(StopReplicaResponsePartitionError)
    )


def error_response(request: StopReplicaRequest, code: ErrorCode) -> StopReplicaResponse:
    """Refuse the whole request."""
    return StopReplicaResponse(
        error_code=code,
        partition_errors=[
            StopReplicaResponsePartitionError(
                topic_name=topic, partition_index=partition_id, error_code=code
            )
            for topic, partition_id in partitions(request)
        ],
    )


def partitions(request: StopReplicaRequest) -> list[tuple[str, int]]:
    """List (topic, partition) of all partitions, grouped by topic in this version or not."""
    ungrouped = [
        (partition.topic_name, partition.partition_index)
        for partition in request.ungrouped_partitions
    ]
    grouped = [
        (topic.name, partition_id)
        for topic in request.topics
        for partition_id in topic.partition_indexes
    ]
    return ungrouped + grouped
