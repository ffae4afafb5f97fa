"""Replicas are moved between directories while they are written, truncated and read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.replication.directory_moves import LAST_BYTES
from broker.replication.replication_quota import UNLIMITED
from core_log.log import AppendLater
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaRequestTopic
from tests.broker.replication.directory_stage import (
    LARGE,
    T0,
    T1,
    A,
    B,
    C,
    DirectoryStage,
    numbers,
    three_directories,
)
from tests.broker.replication.replicas import (
    NOW_MS,
    Replicas,
    leader_and_isr,
)


@pytest.mark.virtual_time
async def test_while_a_thread_does_the_last_step_the_log_is_read_and_who_appends_waits() -> None:
    stage = three_directories()
    stage.append(b"0")
    held: list[list[Any]] = []

    def look() -> None:
        log = stage.replicas.manager.log(T0)
        if log.is_held:
            with pytest.raises(AppendLater):
                stage.append(b"late")
            others = stage.replicas.roles.has_lent([T0]), stage.move(T0, C)
            held.append([stage.values(), stage.replicas.manager.log(T0) is log, *others])

    stage.thread.meanwhile = [look] * 20
    stage.move(T0, B)
    await stage.spawned.ended()

    assert held == [[[b"0"], True, True, ErrorCode.REPLICA_NOT_AVAILABLE]]
    assert stage.place() == B
    assert [flush.topic_partition for flush in stage.replicas.flushes] == [T0]
    stage.append(b"later")
    assert stage.values() == [b"0", b"later"]


@pytest.mark.virtual_time
async def test_a_replica_is_moved_while_it_is_written() -> None:
    stage = three_directories()
    stage.fill(10)
    stage.thread.meanwhile = [lambda: stage.append(b"late"), lambda: stage.append(b"later")]
    assert stage.move(T0, B) is ErrorCode.NONE
    assert stage.described() == {A: [(0, 0, False)], B: [(0, 10, True)], C: []}
    stage.append(b"early")
    await stage.spawned.ended()
    assert stage.described() == {A: [], B: [(0, 0, False)], C: []}
    assert stage.values() == [*numbers(10), b"early", b"late", b"later"]
    stage.append(b"after")
    assert stage.values()[-1] == b"after"
    assert stage.replicas.manager.high_watermark(T0) == 14


@pytest.mark.virtual_time
async def test_what_comes_while_the_rest_is_flushed_is_appended_at_the_end() -> None:
    stage = three_directories()
    stage.append(b"0")
    # the piece, its flush, and the checkpoint
    stage.thread.meanwhile = [lambda: None, lambda: stage.append(b"1"), lambda: stage.append(b"2")]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert (stage.place(), stage.values()) == (B, numbers(3))


@pytest.mark.virtual_time
async def test_more_than_a_little_at_the_end_is_copied_off_the_loop_again() -> None:
    stage = three_directories()
    stage.append(b"0")
    stage.thread.meanwhile = [lambda: None, lambda: stage.fill(5, size=LAST_BYTES // 4)]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert (stage.place(), stage.values()) == (B, [b"0", *numbers(5)])


@pytest.mark.virtual_time
async def test_what_is_cut_off_a_replica_that_follows_is_cut_off_its_copy() -> None:
    stage = three_directories()
    stage.fill(10)

    def cut() -> None:
        """Follow another leader, which has only five of the records, and then others."""
        roles = stage.replicas.roles
        roles.become_leader_or_follower(
            leader_and_isr("t", leader=1, isr=(1,), replicas=(0, 1), epoch=1), NOW_MS
        )
        partition = stage.replicas.manager.partition(T0)
        partition.log.truncate_to(5)
        partition.note_truncation()
        roles.become_leader_or_follower(
            leader_and_isr("t", leader=0, isr=(0,), replicas=(0, 1), epoch=2), NOW_MS
        )
        for number in range(3):
            stage.append(b"new %d" % number)

    stage.thread.meanwhile = [*[lambda: None] * 4, cut]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.place() == B
    assert stage.values() == [*numbers(5), b"new 0", b"new 1", b"new 2"]
    assert stage.replicas.manager.log(T0).leader_epochs.entries == [(0, 0), (2, 5)]


@pytest.mark.virtual_time
async def test_what_is_given_up_at_the_beginning_is_not_copied() -> None:
    stage = three_directories()
    stage.fill(10)

    def give_up() -> None:
        stage.replicas.manager.log(T0).increment_log_start_offset(7)

    stage.thread.meanwhile = [lambda: None, give_up]
    stage.move(T0, B)
    await stage.spawned.ended()
    log = stage.replicas.manager.log(T0)
    assert (stage.place(), log.log_start_offset, stage.values()) == (B, 7, numbers(10)[7:])


@pytest.mark.virtual_time
async def test_a_log_that_begins_within_a_batch_is_moved() -> None:
    stage = three_directories()
    stage.append(*numbers(10))
    stage.append(b"10")
    stage.replicas.manager.log(T0).increment_log_start_offset(4)
    stage.move(T0, B)
    await stage.spawned.ended()
    assert (stage.place(), stage.replicas.manager.log(T0).log_start_offset) == (B, 4)
    assert stage.values() == numbers(11)[4:]


@pytest.mark.virtual_time
async def test_one_replica_at_a_time_is_moved_into_a_directory() -> None:
    stage = three_directories(2)
    stage.replicas.manager.logs.set_target_directory(T0, A)
    stage.fill(6)
    stage.fill(6, tp=T1)
    stage.move(T1, C)
    await stage.spawned.ended()
    seen = []
    stage.thread.meanwhile = [lambda: seen.append(stage.described()[B])] * 20
    stage.move(T0, B)
    stage.move(T1, B)
    await stage.spawned.ended()
    assert [stage.place(T0), stage.place(T1)] == [B, B]
    assert stage.values(T0) == stage.values(T1) == numbers(6)
    lags = [tuple(lag for _, lag, is_future in sorted(replicas) if is_future) for replicas in seen]
    assert (6, 6) in lags
    assert all(len(lag) < 2 or lag[1] == 6 for lag in lags)  # the second has not begun


@pytest.mark.virtual_time
async def test_moving_is_held_to_its_rate() -> None:
    stage = three_directories()
    stage.fill(20, size=LARGE)
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    stage.quota.limit = LARGE
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.place() == B
    assert 10 < loop.time() - began < 40  # twenty times as much as a second's


@pytest.mark.virtual_time
async def test_a_limit_that_is_lifted_lets_what_waits_go_on() -> None:
    stage = three_directories()
    stage.fill(20)
    stage.quota.limit = 1
    stage.move(T0, B)
    await asyncio.sleep(5)
    assert stage.place() == A
    stage.quota.limit = UNLIMITED
    await stage.spawned.ended()
    assert stage.place() == B
    assert asyncio.get_running_loop().time() < 6


@pytest.mark.virtual_time
async def test_a_move_can_be_given_up_and_go_elsewhere() -> None:
    stage = three_directories()
    stage.fill(10)
    stage.thread.meanwhile = [lambda: None, lambda: stage.move(T0, A)]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.described() == {A: [(0, 0, False)], B: [], C: []}
    stage.thread.meanwhile = [lambda: None, lambda: stage.move(T0, C)]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.described() == {A: [], B: [], C: [(0, 0, False)]}
    assert stage.values() == numbers(10)


@pytest.mark.virtual_time
async def test_a_directory_is_remembered_for_a_partition_that_is_not_here_yet() -> None:
    stage = three_directories(led=False)
    assert stage.move(T0, C) is ErrorCode.REPLICA_NOT_AVAILABLE
    stage.replicas.lead("t")
    assert stage.place() == C
    assert stage.move(T0, C) is ErrorCode.NONE
    await stage.spawned.ended()
    assert stage.described() == {A: [], B: [], C: [(0, 0, False)]}


@pytest.mark.virtual_time
async def test_what_cannot_be_moved_is_refused() -> None:
    stage = three_directories()
    assert stage.move(T0, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    stage.replicas.roles.become_leader_or_follower(
        leader_and_isr("t", isr=(0, 1), replicas=(0, 1), epoch=1), NOW_MS
    )
    stage.replicas.manager.log(T0).guard.fail("broken")
    assert stage.move(T0, B) is ErrorCode.KAFKA_STORAGE_ERROR
    assert stage.described()[B] == []


@pytest.mark.virtual_time
async def test_a_deleted_partition_is_not_moved_any_more() -> None:
    stage = three_directories()
    stage.fill(10)

    def delete() -> None:
        stage.replicas.roles.stop_replicas(
            StopReplicaRequest(
                controller_id=0,
                controller_epoch=1,
                delete_partitions=True,
                topics=[StopReplicaRequestTopic(name="t", partition_indexes=[0])],
            )
        )

    stage.thread.meanwhile = [lambda: None, delete]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.described() == {A: [], B: [], C: []}


@pytest.mark.virtual_time
async def test_a_move_goes_on_after_a_crash_when_the_partition_is_led_again() -> None:
    stage = three_directories()
    stage.fill(10)

    def crash() -> None:
        raise asyncio.CancelledError

    stage.thread.meanwhile = [*[lambda: None] * 3, crash]
    stage.move(T0, B)
    with pytest.raises(asyncio.CancelledError):
        await stage.spawned.ended()
    stage.replicas.manager.logs.close(clean=False)
    again = DirectoryStage(
        Replicas(directory=stage.replicas.directory, others=stage.replicas.others)
    )
    again.replicas.lead("t")
    ((_, lag, is_future),) = again.described()[B]
    assert is_future
    assert 0 < lag < 10
    await again.spawned.ended()
    assert (again.place(), again.values()) == (B, numbers(10))


@pytest.mark.virtual_time
async def test_a_directory_that_is_full_ends_the_move_and_nothing_else() -> None:
    small = Disk(free_bytes=3 * LARGE)
    a, b = MemoryDirectory("a"), MemoryDirectory("b", small)
    stage = DirectoryStage(Replicas(directory=a, others=(b,)))
    stage.replicas.lead("t")
    stage.fill(10)
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.described() == {A: [(0, 0, False)], B: []}
    stage.append(b"more")
    assert stage.values() == [*numbers(10), b"more"]


@pytest.mark.virtual_time
async def test_what_was_on_disk_is_so_after_the_move() -> None:
    stage = three_directories(flush_messages=1)
    manager = stage.replicas.manager
    stage.append(b"0")

    def append_and_flush() -> None:
        stage.append(b"1")
        log = manager.log(T0)
        flush = log.begin_flush()
        flush.run()
        log.end_flush(flush)
        manager.note_flush(manager.partition(T0))

    stage.thread.meanwhile = [append_and_flush] * 4
    stage.move(T0, B)
    await stage.spawned.ended()
    log = manager.log(T0)
    assert stage.place() == B
    assert log.recovery_point == log.log_end_offset == manager.high_watermark(T0)
    manager.logs.close(clean=False)
    for directory in (stage.replicas.directory, *stage.replicas.others):
        directory.lose_power()
    again = Replicas(directory=stage.replicas.directory, others=stage.replicas.others)
    assert again.manager.logs.logs[T0].log_end_offset == log.log_end_offset


@pytest.mark.virtual_time
async def test_a_copy_that_cannot_be_flushed_is_given_up_and_not_believed() -> None:
    stage = three_directories()
    stage.append(b"0")

    def fail() -> None:
        raise OSError("the disk is broken")

    stage.thread.meanwhile = [lambda: None, lambda: None, fail]  # aligned, appended, flushed
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.described() == {A: [(0, 0, False)], B: [], C: []}
    stage.append(b"1")
    assert stage.values() == numbers(2)


@pytest.mark.virtual_time
async def test_what_cannot_be_read_is_tried_again_after_a_while() -> None:
    stage = three_directories()
    stage.append(b"0")

    def fail() -> None:
        raise OSError("it cannot be read now")

    stage.thread.meanwhile = [fail, fail]
    stage.move(T0, B)
    await stage.spawned.ended()
    assert stage.place() == B
    assert 2 <= asyncio.get_running_loop().time() < 3
