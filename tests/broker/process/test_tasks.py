"""The end of a broker's tasks."""

from __future__ import annotations

import asyncio

from broker.process.tasks import Tasks


async def test_end_waits_for_those_that_have_something_to_finish() -> None:
    finished: list[str] = []

    async def careful() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            finished.append("careful")

    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group)
        tasks.spawn(careful())
        await asyncio.sleep(0)
        await tasks.end()
        assert finished == ["careful"]


async def test_what_is_spawned_after_the_end_never_begins() -> None:
    begun: list[str] = []

    async def late() -> None:
        begun.append("late")

    async with asyncio.TaskGroup() as group:
        tasks = Tasks(group)
        await tasks.end()
        task = tasks.spawn(late())
        await asyncio.wait([task])
        assert task.cancelled()
    assert begun == []
