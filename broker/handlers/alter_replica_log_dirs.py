"""AlterReplicaLogDirs: move replicas of this broker to other of its directories (KIP-113)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.long_answers import AnswerBytes, LongAnswer
from broker.network.request_context import RequestContext
from broker.replication.directory_moves import DirectoryMoves, real_path
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
    error_response,
)
from protocol.topic_partition import TopicPartition

REPLICAS_A_TURN = 50
"""Replicas that are read from the request, or begin to move, in one turn of the loop."""
LINKS_A_STEP = 10
"""Parts of a path that are looked up, for they may be links, in the time of one replica."""


def handle(
    moves: DirectoryMoves,
    deferred: Deferred,
    timeout_ms: int,
    request: AlterReplicaLogDirsRequest,
    context: RequestContext,
) -> Outcome:
    """Begin each move, change it or cancel it. If a partition is named twice, the last counts.

    Moves run on after the response. DescribeLogDirs shows their progress.
    """
    results: list[AlterReplicaLogDirsResponseTopic] = []
    steps = _move_all(moves, request, results, context.api_version)

    def move_more() -> Outcome | None:
        # 49,000 would be one turn of 0.5 s (fault strangers-11, was: sum(1 for _ in steps)).
        count = sum(1 for _ in islice(steps, REPLICAS_A_TURN))
        return None if count == REPLICAS_A_TURN else AlterReplicaLogDirsResponse(results=results)

    def respond_late() -> Outcome:
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT)

    # Or all clients would have their turns at the same time (fault strangers-18, was: None).
    asking = owner_of(context)
    return deferred.respond_in_turns(move_more, timeout_ms, respond_late, asking)


def _move_all(
    moves: DirectoryMoves,
    request: AlterReplicaLogDirsRequest,
    results: list[AlterReplicaLogDirsResponseTopic],
    version: int,
) -> Iterator[None]:
    """Add the result of each replica to `results`, by topic, in steps of one replica."""
    paths: dict[str, dict[int, str]] = {}
    for directory in request.dirs:
        # Once, and not for each replica: 16,000 parts took 0.3 s (fault strangers-18, was: 0).
        links = directory.path.count("/")
        for _ in range(0, links, LINKS_A_STEP):
            yield
        path = real_path(directory.path)
        for topic in directory.topics:
            of_topic = paths.setdefault(topic.name, {})
            for index in topic.partitions:
                of_topic[index] = path
                yield

    size = AnswerBytes()
    for name, of_topic in paths.items():
        partitions = LongAnswer(AlterReplicaLogDirsResponse, version, size)
        for index, path in of_topic.items():
            code = _move(moves, TopicPartition(name, index), path)
            answer = AlterReplicaLogDirsResponsePartition(partition_index=index, error_code=code)
            partitions.add([answer])
            yield
        encoded: Any = partitions.array()
        results.append(AlterReplicaLogDirsResponseTopic(topic_name=name, partitions=encoded))


def _move(moves: DirectoryMoves, topic_partition: TopicPartition, path: str) -> ErrorCode:
    try:
        moves.move(topic_partition, path)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE
