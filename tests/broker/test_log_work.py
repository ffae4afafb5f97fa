"""Work on the files of logs: one piece per log at a time, and a lent log is given to nobody."""

from __future__ import annotations

import asyncio
import errno

import attrs
import pytest

from core_log.log import Log
from core_log.log_work import MOST_WRITE_BACKS, LogWork
from core_log.memory_directory import MemoryDirectory
from tests.broker.replication.replicas import Replicas
from tests.stage.disk import Disk, turns


@attrs.define(eq=False)
class LogWorkStage:
    """Two logs, and a disk that works when the test says so."""

    disk: Disk = attrs.field(factory=Disk)
    replicas: Replicas = attrs.field(factory=lambda: Replicas().lead("t", partitions=2))
    work: LogWork = attrs.field(init=False)
    done: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.work = LogWork(self.disk)

    def log(self, partition: int = 0) -> Log:
        return list(self.replicas.manager.partitions.values())[partition].log

    def lend(self, name: str, partition: int = 0) -> asyncio.Task[None]:
        return asyncio.ensure_future(
            self.work.lend(self.log(partition), lambda: self.done.append(name))
        )

    async def wait_until_returned(self, partition: int = 0) -> None:
        await self.work.wait_until_returned([self.log(partition)])
        self.done.append("back")


async def test_log_is_lent_to_one_at_a_time_and_others_go_on() -> None:
    stage = LogWorkStage()
    first, second, other = stage.lend("a"), stage.lend("b"), stage.lend("of another", 1)
    await turns()
    assert len(stage.disk.waiting) == 2
    assert stage.log().is_lent
    await stage.disk.run_next()
    await stage.disk.run_next()
    assert stage.done == ["a", "of another"]
    assert not stage.log(1).is_lent
    await stage.disk.run_next()
    await asyncio.gather(first, second, other)
    assert (stage.done, stage.log().is_lent) == (["a", "of another", "b"], False)


async def test_the_disk_is_told_to_begin_in_threads_and_no_more_than_a_few_at_once() -> None:
    stage = LogWorkStage()
    file = MemoryDirectory().open_segment("a.log")
    for start in range(5):
        stage.work.write_back(file, start, 1)
    assert (len(stage.disk.waiting), file.written_back) == (MOST_WRITE_BACKS, [])

    await stage.disk.run_next()
    stage.work.write_back(file, 9, 1)
    for _ in range(MOST_WRITE_BACKS):
        await stage.disk.run_next()
    assert file.written_back == [(0, 1), (1, 1), (9, 1)]


def test_who_appends_in_a_thread_tells_the_disk_himself() -> None:
    file, disk = MemoryDirectory().open_segment("a.log"), Disk()
    LogWork(disk).write_back(file, 3, 4)
    assert (file.written_back, disk.waiting) == ([(3, 4)], [])


async def test_a_disk_that_cannot_be_told_to_begin_ends_nothing() -> None:
    stage = LogWorkStage()
    for _ in range(MOST_WRITE_BACKS):
        stage.work.write_back(MemoryDirectory().open_segment("a.log"), 0, 1)
        await stage.disk.run_next(OSError(errno.EIO, "Input/output error"))
    stage.work.write_back(MemoryDirectory().open_segment("a.log"), 0, 1)
    assert len(stage.disk.waiting) == 1
    await stage.disk.run_next()


async def test_who_needs_a_log_waits_until_it_is_back() -> None:
    stage = LogWorkStage()
    lent = stage.lend("a")
    await turns()
    waiting = asyncio.ensure_future(stage.wait_until_returned())
    await turns()
    assert stage.done == []
    await stage.disk.run_next()
    await asyncio.gather(lent, waiting)
    assert stage.done == ["a", "back"]


async def test_log_stays_lent_while_its_thread_works_though_nobody_waits_for_it() -> None:
    stage = LogWorkStage()
    lent = stage.lend("a")
    await turns()
    lent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lent
    assert stage.log().is_lent
    await stage.disk.run_next()
    assert (stage.done, stage.log().is_lent) == (["a"], False)


async def test_who_needs_logs_waits_until_none_of_them_is_lent() -> None:
    stage = LogWorkStage()
    cancelled, other = stage.lend("a"), stage.lend("b", 1)
    await turns()
    cancelled.cancel()
    waiting = asyncio.ensure_future(stage.work.wait_until_returned([stage.log(0), stage.log(1)]))
    await turns()
    again = stage.lend("c", 1)
    await turns()
    for _ in range(2):
        await stage.disk.run_next()
        await turns()
    assert not waiting.done()
    await stage.disk.run_next()
    await asyncio.gather(other, again, waiting)
    assert stage.done == ["a", "b", "c"]


async def test_log_is_back_after_work_that_failed() -> None:
    stage = LogWorkStage()
    lent = stage.lend("a")
    await turns()
    await stage.disk.run_next(OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        await lent
    assert not stage.log().is_lent
