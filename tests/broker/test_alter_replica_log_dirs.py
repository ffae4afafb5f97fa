"""AlterReplicaLogDirs: one result for each replica, in whatever order the request names them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.handlers.alter_replica_log_dirs import REPLICAS_A_TURN
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.broker.received import received
from tests.broker.replication.directory_stage import A, B, C, DirectoryStage, three_directories

Results = list[tuple[str, int, int]]
"""Topic, partition and error of each replica."""


def request_of(*places: tuple[str, str, Sequence[int]]) -> AlterReplicaLogDirsRequest:
    """Ask to move (directory, topic, partitions)."""
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDirsRequestDir(
                path=path,
                topics=[AlterReplicaLogDirsRequestTopic(name=topic, partitions=partitions)],
            )
            for path, topic, partitions in places
        ]
    )


def results_of(response: Any) -> Results:
    answer = received(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, response)
    return [
        (topic.topic_name, p.partition_index, p.error_code)
        for topic in answer.results
        for p in topic.partitions
    ]


def move(stage: DirectoryStage, *places: tuple[str, str, Sequence[int]]) -> Results:
    return results_of(stage.answer(request_of(*places)))


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


@pytest.mark.fault("strangers-11")
@pytest.mark.virtual_time
async def test_very_many_replicas_are_read_and_moved_some_of_them_a_turn() -> None:
    stage = three_directories()
    many = range(10 * REPLICAS_A_TURN)
    wait = stage.answer(request_of((C, "t", many), (B, "t", many)))
    turns = 0
    while (response := wait.try_complete(False)) is None:
        await asyncio.sleep(0)
        turns += 1

    missing = [("t", index, ErrorCode.REPLICA_NOT_AVAILABLE) for index in many[1:]]
    assert results_of(response) == [("t", 0, ErrorCode.NONE), *missing]
    assert turns >= 3 * len(many) // REPLICAS_A_TURN
    await stage.spawned.ended()
    assert stage.place() == B
