"""AlterReplicaLogDirs: move replicas to other directories of a broker (KIP-113)."""

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
    """A log directory by its absolute path, and the replicas that are to be in it."""

    path: str = wire(STRING)
    topics: Sequence[AlterReplicaLogDirsRequestTopic] = wire(Array(AlterReplicaLogDirsRequestTopic))


@message(api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-1", flexible="2+")
class AlterReplicaLogDirsRequest:
    """Have the asked broker's replicas in these directories."""

    dirs: Sequence[AlterReplicaLogDirsRequestDir] = wire(Array(AlterReplicaLogDirsRequestDir))


@nested
class AlterReplicaLogDirsResponsePartition:
    """A replica: REPLICA_NOT_AVAILABLE is remembered for when there is one."""

    partition_index: int = wire(INT32)
    error_code: int = wire(INT16)


@nested
class AlterReplicaLogDirsResponseTopic:
    """A topic of AlterReplicaLogDirsResponse."""

    topic_name: str = wire(STRING)
    partitions: Sequence[AlterReplicaLogDirsResponsePartition] = wire(
        Array(AlterReplicaLogDirsResponsePartition)
    )


@message(api=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-1", flexible="2+")
class AlterReplicaLogDirsResponse:
    """Whether each move has begun; DescribeLogDirs says how far it is."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AlterReplicaLogDirsResponseTopic] = wire(
        Array(AlterReplicaLogDirsResponseTopic)
    )


def error_response(
    request: AlterReplicaLogDirsRequest, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    """The same error for every partition."""
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
