"""A member's view of the tree in memory."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from groups.zookeeper.events import GroupSnapshot
from groups.zookeeper.registration import StaticSubscription, Subscription
from groups.zookeeper.tree import GroupTree
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.api import WatchEvent
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import TopicAssignment

P0, P1, P2 = (TopicPartition("t", p) for p in range(3))


def play(scene: Callable[[MemoryZooKeeper], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene(MemoryZooKeeper()))


async def a_tree(
    zk: MemoryZooKeeper,
    name: str,
    subscription: Subscription | None = None,
    session: MemorySession | None = None,
) -> GroupTree:
    """Build a member's tree, not registered yet; by default in a session of its own."""
    if session is None:
        session = zk.session()
        await session.start()
    return GroupTree(session, "g", f"g_{name}", subscription or StaticSubscription({"t": 1}))


async def a_topic(zk: MemoryZooKeeper, topic: str, partitions: int) -> None:
    session = zk.session()
    await session.start()
    content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
    await session.create(TopicAssignment.path(topic), content, make_parents=True)


def unwatched(event: WatchEvent) -> None:
    """Ignore a watch event."""


async def reading(tree: GroupTree) -> GroupSnapshot:
    read = await tree.read_group(unwatched, unwatched, unwatched)
    assert isinstance(read, GroupSnapshot)
    return read


class Counting:
    """A session that counts its calls by name; `before` runs before each call."""

    def __init__(self, session: MemorySession) -> None:
        self._session = session
        self.calls: Counter[str] = Counter()
        self.before: Callable[[str], Coroutine[Any, Any, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._session, name)
        if not asyncio.iscoroutinefunction(method):
            return method

        async def counted(*arguments: Any, **keywords: Any) -> Any:
            self.calls[name] += 1
            if self.before:
                await self.before(name)
            return await method(*arguments, **keywords)

        return counted
