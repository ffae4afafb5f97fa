"""Work on the files of logs: one piece a log at a time, and nobody is handed a log that is lent."""

from __future__ import annotations

import asyncio

import attrs
import pytest

from core_log.log import Log
from core_log.log_work import LogWork
from tests.broker.replicas import Replicas
from tests.broker.test_flusher import Disk, turns


@attrs.define(eq=False)
class World:
    """Two logs, and a disk that does what it is told when it is told."""

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

    async def until_back(self, partition: int = 0) -> None:
        await self.work.until_back([self.log(partition)])
        self.done.append("back")


async def test_log_is_lent_to_one_at_a_time_and_others_go_on() -> None:
    world = World()
    first, second, other = world.lend("a"), world.lend("b"), world.lend("of another", 1)
    await turns()
    assert len(world.disk.waiting) == 2
    assert world.log().is_lent
    await world.disk.run_next()
    await world.disk.run_next()
    assert world.done == ["a", "of another"]
    assert not world.log(1).is_lent
    await world.disk.run_next()
    await asyncio.gather(first, second, other)
    assert (world.done, world.log().is_lent) == (["a", "of another", "b"], False)


async def test_who_needs_a_log_waits_until_it_is_back() -> None:
    world = World()
    lent = world.lend("a")
    await turns()
    waiting = asyncio.ensure_future(world.until_back())
    await turns()
    assert world.done == []
    await world.disk.run_next()
    await asyncio.gather(lent, waiting)
    assert world.done == ["a", "back"]


async def test_log_stays_lent_while_its_thread_works_though_nobody_waits_for_it() -> None:
    world = World()
    lent = world.lend("a")
    await turns()
    lent.cancel()
    with pytest.raises(asyncio.CancelledError):
        await lent
    assert world.log().is_lent
    await world.disk.run_next()
    assert (world.done, world.log().is_lent) == (["a"], False)


async def test_who_needs_logs_waits_until_none_of_them_is_lent() -> None:
    world = World()
    cancelled, other = world.lend("a"), world.lend("b", 1)
    await turns()
    cancelled.cancel()
    waiting = asyncio.ensure_future(world.work.until_back([world.log(0), world.log(1)]))
    await turns()
    again = world.lend("c", 1)
    await turns()
    for _ in range(2):
        await world.disk.run_next()
        await turns()
    assert not waiting.done()
    await world.disk.run_next()
    await asyncio.gather(other, again, waiting)
    assert world.done == ["a", "b", "c"]


async def test_log_is_back_after_work_that_failed() -> None:
    world = World()
    lent = world.lend("a")
    await turns()
    await world.disk.run_next(OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output"):
        await lent
    assert not world.log().is_lent
