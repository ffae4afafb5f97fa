"""AlterReplicaLogDirs: move replicas of this broker to other of its directories (KIP-113)."""

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
    """Begin each move, change it or cancel it. If a partition is named twice, the last counts."""
    paths = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }

    # Moves run on after the response. DescribeLogDirs shows their progress.
    # They are sorted, because the response groups neighbours of one topic.
    codes = {
        topic_partition: _move(moves, topic_partition, path)
        for topic_partition, path in sorted(paths.items())
    }

    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirsResponseTopic(
                topic_name=topic,
                partitions=[
                    AlterReplicaLogDirsResponsePartition(
                        partition_index=topic_partition.partition,
                        error_code=codes[topic_partition],
                    )
                    for topic_partition in same_topic
                ],
            )
            for topic, same_topic in groupby(codes, key=lambda partition: partition.topic)
        ]
    )


def _move(moves: DirectoryMoves, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        moves.move(topic_partition, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
