"""Connectors on a ZooKeeper in memory, in virtual time: what they ask of it, and when no more."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clients.high_level.connector import ConsumerConnector
from offsets.store import CommitFailed
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.virtual_time import VirtualTimeLoop
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConsumerOffset, TopicAssignment

P0 = TopicPartition("t", 0)


class Told:
    """A session whose calls are listed: (name, path)."""

    def __init__(self, session: MemorySession) -> None:
        self.session = session
        self.calls: list[tuple[str, str]] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.session, name)
        if asyncio.iscoroutinefunction(method):

            def call(*arguments: Any, **keywords: Any) -> Any:
                self.calls.append((name, str(arguments[0]) if arguments else ""))
                return method(*arguments, **keywords)

            return call
        return method

    def asked_of_migrations(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if "/kgroup/" in call[1]]


class World:
    def __init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(lambda: int(asyncio.get_running_loop().time() * 1000))

    async def session(self) -> MemorySession:
        session = self.zookeeper.session()
        await session.start()
        return session

    async def topic(self, partitions: int) -> None:
        content = TopicAssignment(dict.fromkeys(range(partitions), (0,))).encode()
        await (await self.session()).create(TopicAssignment.path("t"), content, make_parents=True)

    async def consumer(self, name: str) -> tuple[ConsumerConnector, Told]:
        """A member of group g that has joined."""
        zk = Told(await self.session())
        settings = {"group.id": "g", "zookeeper.connect": "z:1", "consumer.id": name}
        connector = ConsumerConnector(settings, zk=zk)  # type: ignore[arg-type]
        await connector.create_message_streams({"t": 1})
        await asyncio.sleep(1)
        return connector, zk

    def committed(self) -> bytes | None:
        return self.zookeeper.tree[ConsumerOffset.path("g", "t", 0)].data


def play(scene: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scene(World())

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(whole())


def test_who_has_left_commits_nothing_though_the_session_is_the_callers_and_lives_on() -> None:
    async def scene(work: World) -> None:
        await work.topic(1)
        connector, _ = await work.consumer("a")
        await connector.commit_offsets({P0: OffsetAndMetadata(7)})
        await connector.shutdown()
        successor, _ = await work.consumer("b")
        await successor.commit_offsets({P0: OffsetAndMetadata(9)})
        with pytest.raises(CommitFailed, match="does not own"):
            await connector.commit_offsets({P0: OffsetAndMetadata(8)})
        await connector.commit_offsets()
        assert work.committed() == b"9"
        await successor.shutdown()

    play(scene)


def test_without_a_migration_a_session_asks_for_one_at_its_start_and_never_again() -> None:
    async def scene(work: World) -> None:
        await work.topic(4)
        first, zk = await work.consumer("a")
        assert len(zk.asked_of_migrations()) <= 8
        zk.calls.clear()
        second, _ = await work.consumer("b")
        await first.commit_offsets({P0: OffsetAndMetadata(7)})
        await second.shutdown()
        await asyncio.sleep(30)
        assert first.metrics.owned_partitions_count == 4
        assert zk.calls
        assert zk.asked_of_migrations() == []
        await first.shutdown()

    play(scene)
