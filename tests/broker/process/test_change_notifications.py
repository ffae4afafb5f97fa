"""Notifications in ZooKeeper: each is read once, however many stand there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import attrs

from broker.process.change_notifications import ChangeNotifications
from tests.broker.spawning import Spawned
from zk.api import ZkSession
from zk.memory import MemoryZooKeeper

DIRECTORY = "/changes"


@attrs.define(eq=False)
class ReadingSession:
    """A session that notes which nodes are read."""

    zk: ZkSession
    read: list[str] = attrs.field(factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.zk, name)

    async def get_many(self, paths: Sequence[str]) -> Any:
        self.read += paths
        return await self.zk.get_many(paths)


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
