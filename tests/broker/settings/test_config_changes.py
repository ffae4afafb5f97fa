"""Notifications of changed settings: who gets them, in which order, and when they are purged."""

from __future__ import annotations

import attrs
import pytest

from broker.process.change_notifications import PURGE_MS
from broker.settings.config_changes import ConfigChanges
from tests.broker.refusing_session import RefusingSession
from tests.broker.spawning import Spawned
from zk.api import ConnectionLoss, ZkError
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConfigChange

V1 = b'{"version":1,"entity_type":"topics","entity_name":"old"}'


@attrs.define(eq=False)
class NotificationStage:
    """A broker that follows the notifications, and a tool that writes them."""

    now_ms: int = 1000
    notified: list[str] = attrs.field(factory=list)
    spawned: Spawned = attrs.field(factory=Spawned)
    zookeeper: MemoryZooKeeper = attrs.field(init=False)
    session: MemorySession = attrs.field(init=False)
    refusing: RefusingSession = attrs.field(init=False)
    tool: MemorySession = attrs.field(init=False)
    changes: ConfigChanges = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.zookeeper = MemoryZooKeeper(lambda: self.now_ms)
        self.session, self.tool = self.zookeeper.session(), self.zookeeper.session()
        self.refusing = RefusingSession(self.session)

    async def connect(self) -> NotificationStage:
        await self.session.start()
        await self.tool.start()
        await self.tool.ensure_path(ConfigChange.directory())
        return self

    async def start(self) -> NotificationStage:
        self.changes = ConfigChanges(
            self.refusing.session,
            self.spawned,
            {
                "topics": lambda name: self.notified.append(f"topic {name}"),
                "brokers": lambda name: self.notified.append(f"broker {name}"),
            },
            lambda: self.notified.append("any"),
        )
        await self.changes.start()
        return self

    async def notify(self, *payloads: bytes | str | None) -> None:
        for payload in payloads:
            data = ConfigChange(payload).encode() if isinstance(payload, str) else payload
            await self.tool.create(ConfigChange.prefix(), data, sequence=True)

    async def count(self) -> int:
        return len((await self.tool.children(ConfigChange.directory()))[0])


async def following() -> NotificationStage:
    return await (await NotificationStage().connect()).start()


async def test_each_change_is_notified_once_in_order() -> None:
    stage = await following()
    await stage.notify("topics/a", "brokers/1", "topics/b", "brokers/<default>", V1)
    await stage.spawned.ended()
    assert stage.notified == ["topic a", "broker 1", "topic b", "broker <default>", "topic old"]


@pytest.mark.parametrize("bad", [None, b"{", b"[]", b'{"version":3,"entity_path":"topics/t"}'])
async def test_what_cannot_be_understood_is_passed_over(
    bad: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await following()
    await stage.notify(bad, "topics/a")
    await stage.spawned.ended()
    assert stage.notified == ["topic a"]
    assert "config_change_0000000000 cannot be read" in caplog.text


async def test_what_is_fifteen_minutes_old_goes_when_the_next_comes() -> None:
    stage = await following()
    await stage.notify("topics/a")
    stage.now_ms += 1
    await stage.notify("topics/b")
    await stage.spawned.ended()
    stage.now_ms = 1000 + PURGE_MS + 1
    await stage.notify("topics/c")
    await stage.spawned.ended()
    assert await stage.count() == 2
    assert stage.notified == ["topic a", "topic b", "topic c"]


async def test_a_broker_that_starts_purges_but_ignores_past_notifications() -> None:
    stage = await NotificationStage().connect()
    await stage.notify("topics/a")
    stage.now_ms += PURGE_MS + 1
    await stage.notify("topics/b")
    await stage.start()
    assert (stage.notified, await stage.count()) == ([], 1)


async def test_in_a_new_session_anything_may_have_changed() -> None:
    stage = await following()
    stage.zookeeper.suspend(stage.session)
    await stage.notify("topics/a")
    for name in (await stage.tool.children(ConfigChange.directory()))[0]:
        await stage.tool.delete(f"{ConfigChange.directory()}/{name}")  # purged by another broker
    stage.zookeeper.expire(stage.session)
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()
    assert stage.notified == ["any"]
    await stage.notify("topics/b")
    await stage.spawned.ended()
    assert stage.notified == ["any", "topic b"]


async def test_in_the_same_session_only_what_was_notified_has_changed() -> None:
    stage = await following()
    stage.zookeeper.suspend(stage.session)
    await stage.notify("topics/a")
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()
    assert stage.notified == ["topic a"]


@pytest.mark.parametrize("method", ["children", "get_many"])
async def test_answer_that_is_lost_in_a_session_that_stays_makes_nobody_deaf(method: str) -> None:
    stage = await following()
    stage.refusing.refuse(method, *[ConnectionLoss("no answer in time")] * 3)
    await stage.notify("topics/a")
    await stage.spawned.ended()
    assert stage.notified == ["topic a"]
    await stage.notify("topics/b")
    await stage.spawned.ended()
    assert stage.notified == ["topic a", "topic b"]


async def test_changes_that_zookeeper_refused_to_show_are_taken_by_the_next_look() -> None:
    stage = await following()
    stage.refusing.refuse("children", ZkError("SessionMoved"))
    await stage.notify("topics/a")
    await stage.spawned.ended()
    await stage.notify("topics/b")  # the watch is lost
    assert stage.notified == []
    await stage.changes.look()
    await stage.notify("topics/c")
    await stage.spawned.ended()
    assert stage.notified == ["topic a", "topic b", "topic c"]
