"""Replicas are moved between directories while they are written, truncated and read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import attrs
import pytest

from broker.handlers import alter_replica_log_dirs, describe_log_dirs
from broker.replication.directory_moves import LAST_BYTES, PIECE_BYTES, DirectoryMoves
from broker.replication.replication_quota import UNLIMITED, ReplicationQuota
from core_log.config import LogConfig
from core_log.log import AppendLater
from core_log.log_work import LogWork
from core_log.memory_directory import Disk, MemoryDirectory
from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsRequestDir,
    AlterReplicaLogDirsRequestTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaRequestTopic
from protocol.records.batch import decode_records
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import (
    NOW_MS,
    AtOnce,
    Replicas,
    batch,
    context,
    leader_and_isr,
)
from tests.broker.spawning import Spawned

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
A, B, C = "/a", "/b", "/c"
LARGE = PIECE_BYTES // 2


class Thread(AtOnce):
    """An executor that does its work at once, after something that a test lets happen first."""

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], object]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        return super().submit(fn, *args, **kwargs)


@attrs.define(eq=False)
class World:
    """Broker 0 with three directories, on the loop's clock."""

    replicas: Replicas
    thread: Thread = attrs.field(factory=Thread)
    spawned: Spawned = attrs.field(factory=Spawned)
    moves: DirectoryMoves = attrs.field(init=False)
    quota: ReplicationQuota = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.quota = ReplicationQuota(0, lambda: int(loop.time() * 1000))
        self.moves = DirectoryMoves(
            self.replicas.manager,
            self.quota,
            LogWork(self.thread),
            self.spawned,
            lambda: NOW_MS,
            asyncio.Lock(),
        )
        self.replicas.manager.leadership.subscribe(self.moves.resume)

    def append(self, *values: bytes, tp: TopicPartition = T0) -> None:
        self.replicas.manager.append(
            tp, batch(*values), all_in_sync=False, zstd_allowed=True, now_ms=NOW_MS
        )

    def fill(self, batches: int = 10, size: int = LARGE, tp: TopicPartition = T0) -> None:
        for number in range(batches):
            self.append(b"%d" % number + b"." * size, tp=tp)

    def move(self, tp: TopicPartition, path: str) -> ErrorCode:
        topic = AlterReplicaLogDirsRequestTopic(name=tp.topic, partitions=[tp.partition])
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDirsRequestDir(path=path, topics=[topic])]
        )
        answer = alter_replica_log_dirs.handle(self.moves, request, context(1))
        ((code,),) = [[p.error_code for p in topic.partitions] for topic in answer.results]
        return ErrorCode.of(code)

    def values(self, tp: TopicPartition = T0) -> list[bytes]:
        """Read everything as a consumer; return the values without their filling."""
        values: list[bytes] = []
        offset = self.replicas.manager.log(tp).log_start_offset
        while True:
            fetched = self.replicas.manager.read(tp, offset, 10 * LARGE, min_one=True)
            if fetched.range is None:
                return values
            records = decode_records(fetched.range.read(), offset)
            values += [(record.value or b"").rstrip(b".") for record in records]
            offset = records[-1].offset + 1

    def place(self, tp: TopicPartition = T0) -> str:
        return self.replicas.manager.logs.futures.current_dir(tp).path

    def described(self) -> dict[str, Sequence[tuple[int, int, bool]]]:
        """Describe the directories: (partition, lag, is_future) of each replica in them."""
        answer = describe_log_dirs.handle(
            self.replicas.manager.logs,
            self.replicas.manager,
            DescribeLogDirsRequest(topics=None),
            context(1),
        )
        return {
            result.log_dir: [
                (p.partition_index, p.offset_lag, p.is_future_key)
                for topic in result.topics
                for p in topic.partitions
            ]
            for result in answer.results
        }


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def world(partitions: int = 1, *, led: bool = True, **config: Any) -> World:
    disk = Disk()
    a, b, c = (MemoryDirectory(name, disk) for name in "abc")
    world = World(Replicas(directory=a, others=(b, c), config=LogConfig(**config)))
    if led:
        world.replicas.lead("t", partitions)
    return world


@pytest.mark.virtual_time
async def test_while_a_thread_does_the_last_step_the_log_is_read_and_who_appends_waits() -> None:
    w = world()
    w.append(b"0")
    held: list[list[Any]] = []

    def look() -> None:
        log = w.replicas.manager.log(T0)
        if log.is_held:
            with pytest.raises(AppendLater):
                w.append(b"late")
            others = w.replicas.roles.has_lent([T0]), w.move(T0, C)
            held.append([w.values(), w.replicas.manager.log(T0) is log, *others])

    w.thread.meanwhile = [look] * 20
    w.move(T0, B)
    await w.spawned.ended()

    assert held == [[[b"0"], True, True, ErrorCode.REPLICA_NOT_AVAILABLE]]
    assert w.place() == B
    assert [flush.topic_partition for flush in w.replicas.flushes] == [T0]
    w.append(b"later")
    assert w.values() == [b"0", b"later"]


@pytest.mark.virtual_time
async def test_a_replica_is_moved_while_it_is_written() -> None:
    w = world()
    w.fill(10)
    w.thread.meanwhile = [lambda: w.append(b"late"), lambda: w.append(b"later")]
    assert w.move(T0, B) is ErrorCode.NONE
    assert w.described() == {A: [(0, 0, False)], B: [(0, 10, True)], C: []}
    w.append(b"early")
    await w.spawned.ended()
    assert w.described() == {A: [], B: [(0, 0, False)], C: []}
    assert w.values() == [*numbers(10), b"early", b"late", b"later"]
    w.append(b"after")
    assert w.values()[-1] == b"after"
    assert w.replicas.manager.high_watermark(T0) == 14


@pytest.mark.virtual_time
async def test_what_comes_while_the_rest_is_flushed_is_appended_at_the_end() -> None:
    w = world()
    w.append(b"0")
    # the piece, its flush, and the checkpoint
    w.thread.meanwhile = [lambda: None, lambda: w.append(b"1"), lambda: w.append(b"2")]
    w.move(T0, B)
    await w.spawned.ended()
    assert (w.place(), w.values()) == (B, numbers(3))


@pytest.mark.virtual_time
async def test_more_than_a_little_at_the_end_is_copied_off_the_loop_again() -> None:
    w = world()
    w.append(b"0")
    w.thread.meanwhile = [lambda: None, lambda: w.fill(5, size=LAST_BYTES // 4)]
    w.move(T0, B)
    await w.spawned.ended()
    assert (w.place(), w.values()) == (B, [b"0", *numbers(5)])


@pytest.mark.virtual_time
async def test_what_is_cut_off_a_replica_that_follows_is_cut_off_its_copy() -> None:
    w = world()
    w.fill(10)

    def cut() -> None:
        """Follow another leader, which has only five of the records, and then others."""
        roles = w.replicas.roles
        roles.become_leader_or_follower(
            leader_and_isr("t", leader=1, isr=(1,), replicas=(0, 1), epoch=1), NOW_MS
        )
        partition = w.replicas.manager.partition(T0)
        partition.log.truncate_to(5)
        partition.note_truncation()
        roles.become_leader_or_follower(
            leader_and_isr("t", leader=0, isr=(0,), replicas=(0, 1), epoch=2), NOW_MS
        )
        for number in range(3):
            w.append(b"new %d" % number)

    w.thread.meanwhile = [*[lambda: None] * 4, cut]
    w.move(T0, B)
    await w.spawned.ended()
    assert w.place() == B
    assert w.values() == [*numbers(5), b"new 0", b"new 1", b"new 2"]
    assert w.replicas.manager.log(T0).leader_epochs.entries == [(0, 0), (2, 5)]


@pytest.mark.virtual_time
async def test_what_is_given_up_at_the_beginning_is_not_copied() -> None:
    w = world()
    w.fill(10)

    def give_up() -> None:
        w.replicas.manager.log(T0).increment_log_start_offset(7)

    w.thread.meanwhile = [lambda: None, give_up]
    w.move(T0, B)
    await w.spawned.ended()
    log = w.replicas.manager.log(T0)
    assert (w.place(), log.log_start_offset, w.values()) == (B, 7, numbers(10)[7:])


@pytest.mark.virtual_time
async def test_a_log_that_begins_within_a_batch_is_moved() -> None:
    w = world()
    w.append(*numbers(10))
    w.append(b"10")
    w.replicas.manager.log(T0).increment_log_start_offset(4)
    w.move(T0, B)
    await w.spawned.ended()
    assert (w.place(), w.replicas.manager.log(T0).log_start_offset) == (B, 4)
    assert w.values() == numbers(11)[4:]


@pytest.mark.virtual_time
async def test_one_replica_at_a_time_is_moved_into_a_directory() -> None:
    w = world(2)
    w.replicas.manager.logs.set_target_directory(T0, A)
    w.fill(6)
    w.fill(6, tp=T1)
    w.move(T1, C)
    await w.spawned.ended()
    seen = []
    w.thread.meanwhile = [lambda: seen.append(w.described()[B])] * 20
    w.move(T0, B)
    w.move(T1, B)
    await w.spawned.ended()
    assert [w.place(T0), w.place(T1)] == [B, B]
    assert w.values(T0) == w.values(T1) == numbers(6)
    lags = [tuple(lag for _, lag, is_future in sorted(replicas) if is_future) for replicas in seen]
    assert (6, 6) in lags
    assert all(len(lag) < 2 or lag[1] == 6 for lag in lags)  # the second has not begun


@pytest.mark.virtual_time
async def test_moving_is_held_to_its_rate() -> None:
    w = world()
    w.fill(20, size=LARGE)
    loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
    w.quota.limit = LARGE
    w.move(T0, B)
    await w.spawned.ended()
    assert w.place() == B
    assert 10 < loop.time() - began < 40  # twenty times as much as a second's


@pytest.mark.virtual_time
async def test_a_limit_that_is_lifted_lets_what_waits_go_on() -> None:
    w = world()
    w.fill(20)
    w.quota.limit = 1
    w.move(T0, B)
    await asyncio.sleep(5)
    assert w.place() == A
    w.quota.limit = UNLIMITED
    await w.spawned.ended()
    assert w.place() == B
    assert asyncio.get_running_loop().time() < 6


@pytest.mark.virtual_time
async def test_a_move_can_be_given_up_and_go_elsewhere() -> None:
    w = world()
    w.fill(10)
    w.thread.meanwhile = [lambda: None, lambda: w.move(T0, A)]
    w.move(T0, B)
    await w.spawned.ended()
    assert w.described() == {A: [(0, 0, False)], B: [], C: []}
    w.thread.meanwhile = [lambda: None, lambda: w.move(T0, C)]
    w.move(T0, B)
    await w.spawned.ended()
    assert w.described() == {A: [], B: [], C: [(0, 0, False)]}
    assert w.values() == numbers(10)


@pytest.mark.virtual_time
async def test_a_directory_is_remembered_for_a_partition_that_is_not_here_yet() -> None:
    w = world(led=False)
    assert w.move(T0, C) is ErrorCode.REPLICA_NOT_AVAILABLE
    w.replicas.lead("t")
    assert w.place() == C
    assert w.move(T0, C) is ErrorCode.NONE
    await w.spawned.ended()
    assert w.described() == {A: [], B: [], C: [(0, 0, False)]}


@pytest.mark.virtual_time
async def test_what_cannot_be_moved_is_refused() -> None:
    w = world()
    assert w.move(T0, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    w.replicas.roles.become_leader_or_follower(
        leader_and_isr("t", isr=(0, 1), replicas=(0, 1), epoch=1), NOW_MS
    )
    w.replicas.manager.log(T0).guard.fail("broken")
    assert w.move(T0, B) is ErrorCode.KAFKA_STORAGE_ERROR
    assert w.described()[B] == []


@pytest.mark.virtual_time
async def test_a_deleted_partition_is_not_moved_any_more() -> None:
    w = world()
    w.fill(10)

    def delete() -> None:
        w.replicas.roles.stop_replicas(
            StopReplicaRequest(
                controller_id=0,
                controller_epoch=1,
                delete_partitions=True,
                topics=[StopReplicaRequestTopic(name="t", partition_indexes=[0])],
            )
        )

    w.thread.meanwhile = [lambda: None, delete]
    w.move(T0, B)
    await w.spawned.ended()
    assert w.described() == {A: [], B: [], C: []}


@pytest.mark.virtual_time
async def test_a_move_goes_on_after_a_crash_when_the_partition_is_led_again() -> None:
    w = world()
    w.fill(10)

    def crash() -> None:
        raise asyncio.CancelledError

    w.thread.meanwhile = [*[lambda: None] * 3, crash]
    w.move(T0, B)
    with pytest.raises(asyncio.CancelledError):
        await w.spawned.ended()
    w.replicas.manager.logs.close(clean=False)
    again = World(Replicas(directory=w.replicas.directory, others=w.replicas.others))
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
    w = World(Replicas(directory=a, others=(b,)))
    w.replicas.lead("t")
    w.fill(10)
    w.move(T0, B)
    await w.spawned.ended()
    assert w.described() == {A: [(0, 0, False)], B: []}
    w.append(b"more")
    assert w.values() == [*numbers(10), b"more"]


@pytest.mark.virtual_time
async def test_what_was_on_disk_is_so_after_the_move() -> None:
    w = world(flush_messages=1)
    manager = w.replicas.manager
    w.append(b"0")

    def append_and_flush() -> None:
        w.append(b"1")
        log = manager.log(T0)
        flush = log.begin_flush()
        flush.run()
        log.end_flush(flush)
        manager.flushed(manager.partition(T0))

    w.thread.meanwhile = [append_and_flush] * 4
    w.move(T0, B)
    await w.spawned.ended()
    log = manager.log(T0)
    assert w.place() == B
    assert log.recovery_point == log.log_end_offset == manager.high_watermark(T0)
    manager.logs.close(clean=False)
    for directory in (w.replicas.directory, *w.replicas.others):
        directory.lose_power()
    again = Replicas(directory=w.replicas.directory, others=w.replicas.others)
    assert again.manager.logs.logs[T0].log_end_offset == log.log_end_offset


@pytest.mark.virtual_time
async def test_a_copy_that_cannot_be_flushed_is_given_up_and_not_believed() -> None:
    w = world()
    w.append(b"0")

    def fail() -> None:
        raise OSError("the disk is broken")

    w.thread.meanwhile = [lambda: None, lambda: None, fail]  # aligned, appended, flushed
    w.move(T0, B)
    await w.spawned.ended()
    assert w.described() == {A: [(0, 0, False)], B: [], C: []}
    w.append(b"1")
    assert w.values() == numbers(2)


@pytest.mark.virtual_time
async def test_what_cannot_be_read_is_tried_again_after_a_while() -> None:
    w = world()
    w.append(b"0")

    def fail() -> None:
        raise OSError("it cannot be read now")

    w.thread.meanwhile = [fail, fail]
    w.move(T0, B)
    await w.spawned.ended()
    assert w.place() == B
    assert 2 <= asyncio.get_running_loop().time() < 3
