"""AlterReplicaLogDirs: one result for each replica, in whatever order the request names them."""

from __future__ import annotations

import pytest

from broker.handlers import alter_replica_log_dirs
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.directory_stage import A, B, C, DirectoryStage, three_directories
from tests.broker.replication.replicas import context


def move(stage: DirectoryStage, *places: tuple[str, str, list[int]]) -> list[tuple[str, int, int]]:
    """Move (directory, topic, partitions); return (topic, partition, error)."""
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequestDir(
                path=path,
                topics=[AlterReplicaLogDirsRequestTopic(name=topic, partitions=partitions)],
            )
            for path, topic, partitions in places
        ]
    )
    answer = alter_replica_log_dirs.handle(stage.moves, request, context(1))
    return [
        (topic.topic_name, p.partition_index, p.error_code)
        for topic in answer.results
        for p in topic.partitions
    ]


@pytest.mark.virtual_time
async def test_each_replica_is_answered_for_itself() -> None:
    stage = three_directories(2)
    results = move(stage, (B, "t", [0]), ("/nowhere", "t", [1]), (C, "u", [0]))
    assert results == [
        ("t", 0, ErrorCode.NONE),
        ("t", 1, ErrorCode.LOG_DIR_NOT_FOUND),
        ("u", 0, ErrorCode.REPLICA_NOT_AVAILABLE),
    ]
    await stage.spawned.ended()
    assert stage.place(TopicPartition("t", 0)) == B


@pytest.mark.virtual_time
async def test_of_two_directories_for_one_replica_the_last_counts() -> None:
    stage = three_directories()
    assert move(stage, (B, "t", [0]), (C, "t", [0])) == [("t", 0, ErrorCode.NONE)]
    await stage.spawned.ended()
    assert stage.place() == C


@pytest.mark.virtual_time
async def test_a_directory_may_be_spelled_in_other_ways() -> None:
    stage = three_directories()
    assert move(stage, (f"{A}/../b/", "t", [0])) == [("t", 0, ErrorCode.NONE)]
    await stage.spawned.ended()
    assert stage.place() == B


@pytest.mark.virtual_time
async def test_directory_with_a_null_byte_is_not_there() -> None:
    stage = three_directories()
    assert move(stage, ("/a\0b", "t", [0])) == [("t", 0, ErrorCode.LOG_DIR_NOT_FOUND)]
    assert stage.place() == A
