"""Notifications in ZooKeeper: each is read once, however many stand there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import attrs
import pytest

from broker.process.change_notifications import ChangeNotifications
from tests.broker.spawning import Spawned
from tests.stage.clock import run_in_virtual_time
from zk.api import ZkSession
from zk.memory import MemoryZooKeeper

DIRECTORY = "/changes"


@attrs.define(eq=False)
class ReadingSession:
    """A session that notes which nodes are read."""

    zk: ZkSession
    read: list[str] = attrs.field(factory=list)
    listed: list[int] = attrs.field(factory=list)
    """The number of names of each look."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.zk, name)

    async def get_many(self, paths: Sequence[str]) -> Any:
        self.read += paths
        return await self.zk.get_many(paths)

    async def children(self, path: str, **watch: Any) -> Any:
        names, stat = await self.zk.children(path, **watch)
        self.listed.append(len(names))
        return names, stat


async def test_a_notification_is_read_once_and_told_once_in_order() -> None:
    zookeeper = MemoryZooKeeper()
    session, tool = zookeeper.session(), zookeeper.session()
    await session.start()
    await tool.start()
    await tool.create(f"{DIRECTORY}/change_", b"before", sequence=True, make_parents=True)

    told: list[bytes | None] = []
    reading, spawned = ReadingSession(session), Spawned()
    changes = ChangeNotifications(
        cast(ZkSession, reading), spawned, DIRECTORY, "changes", lambda _, data: told.append(data)
    )
    await changes.start()
    for number in range(20):
        await tool.create(f"{DIRECTORY}/change_", b"%d" % number, sequence=True)
        await spawned.ended()

    # That from before the start says nothing new.
    assert told == [b"%d" % number for number in range(20)]
    assert len(reading.read) == len(set(reading.read)) == 21


def names_listed_for(changes_made: int) -> int:
    """Return the names that a broker lists for so many changes, 8 ms apart."""

    async def follow() -> int:
        zookeeper = MemoryZooKeeper()
        session, tool = zookeeper.session(), zookeeper.session()
        await session.start()
        await tool.start()
        await tool.ensure_path(DIRECTORY)

        told: list[bytes | None] = []
        reading, tasks = ReadingSession(session), set[asyncio.Task[None]]()
        changes = ChangeNotifications(
            cast(ZkSession, reading),
            lambda work: tasks.add(asyncio.create_task(work)),
            DIRECTORY,
            "changes",
            lambda _, data: told.append(data),
        )
        await changes.start()
        for number in range(changes_made):
            await tool.create(f"{DIRECTORY}/change_", b"%d" % number, sequence=True)
            await asyncio.sleep(0.008)
        await asyncio.sleep(2.0)

        assert told == [b"%d" % number for number in range(changes_made)]
        return sum(reading.listed)

    return run_in_virtual_time(follow())


@pytest.mark.fault("scale-S4")
def test_many_changes_in_a_row_cost_no_more_than_their_number() -> None:
    few, many = names_listed_for(300), names_listed_for(3_000)

    assert many < 12 * few
