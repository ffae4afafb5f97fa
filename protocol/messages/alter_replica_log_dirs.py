"""AlterReplicaLogDirs moves replicas to other log directories of one broker (KIP-113).

v1 adds no field (KIP-219), v2 is v1 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@nested
class AlterReplicaLogDirsRequestTopic:
    """A topic of AlterReplicaLogDirsRequest."""

    name: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@nested
class AlterReplicaLogDirsRequestDir:
    """The absolute path of a log directory, and the replicas to move there."""

    path: str = wire(STRING)
    topics: Sequence[AlterReplicaLogDirsRequestTopic] = wire(Array(AlterReplicaLogDirsRequestTopic))


@message(api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Move replicas of the broker that gets this request."""

    dirs: Sequence[AlterReplicaLogDirsRequestDir] = wire(Array(AlterReplicaLogDirsRequestDir))


@nested
class AlterReplicaLogDirsResponsePartition:
    """The result for a replica.

    After REPLICA_NOT_AVAILABLE the broker uses the directory when it creates the replica.
    """

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class AlterReplicaLogDirsResponseTopic:
    """A topic of AlterReplicaLogDirsResponse."""

    topic_name: str = wire(STRING)
    partitions: Sequence[AlterReplicaLogDirsResponsePartition] = wire(
        Array(AlterReplicaLogDirsResponsePartition)
    )


@message(api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+")
class AlterReplicaLogDirsResponse:
    """The result for each replica: NONE once its move has begun.

    DescribeLogDirs reports the progress.
    """

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AlterReplicaLogDirsResponseTopic] = wire(
        Array(AlterReplicaLogDirsResponseTopic)
    )


def error_response(
    request: AlterReplicaLogDirsRequest, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    """Return the same error for every partition of `request`."""
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseTopic(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirsResponsePartition(partition_index=index, error_code=code)
                    for index in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )
