"""AlterReplicaLogDirs: one result for each replica, in whatever order the request names them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from broker.handlers.alter_replica_log_dirs import LINKS_A_STEP, REPLICAS_A_TURN
from core_log import future_logs
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


async def count_turns(stage: DirectoryStage, request: AlterReplicaLogDirsRequest) -> int:
    """Return the turns of the loop that pass until the response."""
    wait = stage.answer(request)
    turns = 0
    while wait.try_complete(False) is None:
        await asyncio.sleep(0)
        turns += 1
    return turns


@pytest.mark.fault("strangers-18")
@pytest.mark.virtual_time
async def test_the_parts_of_a_path_are_work_too_and_a_path_is_looked_up_once() -> None:
    stage = three_directories()
    many = range(2 * REPLICAS_A_TURN)
    short = await count_turns(stage, request_of(("/elsewhere", "t", many)))
    parts = 50 * LINKS_A_STEP * REPLICAS_A_TURN
    long = await count_turns(stage, request_of(("/x" * parts, "t", many)))
    assert long - short == 50


@pytest.mark.fault("strangers-18")
@pytest.mark.virtual_time
async def test_a_client_has_its_turns_in_one_line() -> None:
    stage = three_directories()
    request = request_of((B, "t", range(10 * REPLICAS_A_TURN)))
    alone = await count_turns(stage, request)

    # Of two requests of one client the second waits for the first.
    first, second = stage.answer(request), stage.answer(request)
    turns = 0
    while second.try_complete(False) is None:
        await asyncio.sleep(0)
        turns += 1
    assert first.try_complete(False) is not None
    assert turns > 1.5 * alone


@pytest.mark.fault("strangers-18")
@pytest.mark.virtual_time
async def test_the_directories_of_logs_that_do_not_exist_have_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(future_logs, "MOST_PREFERRED", 5)
    stage = three_directories()
    move(stage, (B, "u", range(20)))
    kept = stage.replicas.manager.logs.futures.preferred
    assert [partition.partition for partition in kept] == [15, 16, 17, 18, 19]
