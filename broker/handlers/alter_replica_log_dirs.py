"""AlterReplicaLogDirs: move replicas of this broker to other directories of it (KIP-113)."""

from __future__ import annotations

from itertools import groupby

from broker.network.request_context import RequestContext
from broker.replication.directory_moves import DirectoryMoves
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)
from protocol.topic_partition import TopicPartition


def handle(
    moves: DirectoryMoves, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Begin each move, change it or give it up; of a partition named twice the last one counts."""
    paths = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    codes = {tp: _moved(moves, tp, path) for tp, path in sorted(paths.items())}
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseTopic(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirsResponsePartition(
                        partition_index=tp.partition, error_code=codes[tp]
                    )
                    for tp in group
                ],
            )
            for topic, group in groupby(codes, key=lambda tp: tp.topic)
        ]
    )


def _moved(moves: DirectoryMoves, tp: TopicPartition, path: str) -> ErrorCode:
    try:
        moves.move(tp, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
