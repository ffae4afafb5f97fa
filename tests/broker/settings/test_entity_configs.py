"""Settings in ZooKeeper, in memory and real: written over a known version, and notified."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, cast

import attrs
import pytest

from broker.settings.entity_configs import Settings, alter, read_settings
from protocol.errors import ApiError, ErrorCode
from zk.api import Op, ZkSession
from zk.memory import MemoryZooKeeper
from zk.session import KazooSession
from zk.znodes import STARTUP_PATHS, ConfigChange, EntityConfig, TopicAssignment

PATH = EntityConfig.path("topics", "t")


@contextlib.asynccontextmanager
async def connected(zk: ZkSession) -> AsyncIterator[ZkSession]:
    await zk.start()
    for path in (*STARTUP_PATHS, TopicAssignment.path("t")):
        await zk.ensure_path(path)
    try:
        yield zk
    finally:
        await zk.close()


@pytest.fixture(params=["memory", "kazoo"])
def zk(request: pytest.FixtureRequest) -> ZkSession:
    if request.param == "memory":
        return MemoryZooKeeper().session()
    return KazooSession(request.getfixturevalue("zk_chroot"))


def to(**settings: str) -> Callable[[Settings], Settings]:
    return lambda before: {**before, **settings}


async def notified(session: ZkSession) -> list[str]:
    names, _ = await session.children(ConfigChange.directory())
    paths = [f"{ConfigChange.directory()}/{name}" for name in names]
    return [
        json.loads(node[0] or b"")["entity_path"] for node in await session.get_many(paths) if node
    ]


async def test_settings_are_made_then_changed_each_with_a_notification(zk: ZkSession) -> None:
    async with connected(zk) as session:
        await alter(session, "topics", "t", to(a="1"))
        await alter(session, "topics", "t", to(b="2"))
        assert (await read_settings(session, "topics", "t")).settings == {"a": "1", "b": "2"}
        await alter(session, "brokers", "<default>", to(c="3"))
        assert (await read_settings(session, "brokers", "<default>")).settings == {"c": "3"}
        assert await notified(session) == ["topics/t", "topics/t", "brokers/<default>"]


async def test_no_settings_are_left_for_a_topic_that_is_not_there(zk: ZkSession) -> None:
    async with connected(zk) as session:
        with pytest.raises(ApiError) as raised:
            await alter(session, "topics", "u", to(a="1"))
        assert raised.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await session.exists(EntityConfig.path("topics", "u")) is None
        assert await notified(session) == []


@attrs.frozen
class Meddled:
    """A session in which others write before its next write."""

    zk: ZkSession
    others: list[Coroutine[Any, Any, Any]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.zk, name)

    async def multi(self, ops: Sequence[Op]) -> Any:
        while self.others:
            await self.others.pop()
        return await self.zk.multi(ops)


def meddled(zk: ZkSession, other: Coroutine[Any, Any, Any]) -> ZkSession:
    return cast(ZkSession, Meddled(zk, [other]))


async def test_what_others_write_meanwhile_is_not_lost(zk: ZkSession) -> None:
    theirs = EntityConfig({"theirs": "2"}).encode()
    async with connected(zk) as session:
        await alter(meddled(session, session.create(PATH, theirs)), "topics", "t", to(a="1"))
        assert (await read_settings(session, "topics", "t")).settings == {"theirs": "2", "a": "1"}
        await alter(meddled(session, session.set(PATH, theirs)), "topics", "t", to(b="3"))
        assert (await read_settings(session, "topics", "t")).settings == {"theirs": "2", "b": "3"}
        await alter(meddled(session, session.delete(PATH)), "topics", "t", to(c="4"))
        assert (await read_settings(session, "topics", "t")).settings == {"c": "4"}


async def test_a_topic_that_is_deleted_meanwhile_leaves_nothing(zk: ZkSession) -> None:
    async with connected(zk) as session:
        other = session.delete(TopicAssignment.path("t"))
        with pytest.raises(ApiError):
            await alter(meddled(session, other), "topics", "t", to(a="1"))
        assert await session.exists(PATH) is None
        assert await notified(session) == []


async def test_keys_that_another_version_added_stay(zk: ZkSession) -> None:
    async with connected(zk) as session:
        await session.create(PATH, b'{"version":1,"config":{"a":"1"},"later":true}')
        await alter(session, "topics", "t", to(b="2"))
        data, _ = await session.get(PATH)
        assert json.loads(data or b"") == {
            "version": 1,
            "config": {"a": "1", "b": "2"},
            "later": True,
        }
