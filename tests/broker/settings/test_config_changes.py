"""Notifications of changed settings: who gets them, in which order, and when they are purged."""

from __future__ import annotations

import attrs
import pytest

from broker.settings.config_changes import PURGE_MS, ConfigChanges
from tests.broker.refusing_session import RefusingSession
from tests.broker.spawning import Spawned
from zk.api import ConnectionLoss, ZkError
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import ConfigChange

V1 = b'{"version":1,"entity_type":"topics","entity_name":"old"}'


@attrs.define(eq=False)
class World:
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

    async def connect(self) -> World:
        await self.session.start()
        await self.tool.start()
        await self.tool.ensure_path(ConfigChange.directory())
        return self

    async def start(self) -> World:
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


async def following() -> World:
    return await (await World().connect()).start()


async def test_each_change_is_notified_once_in_order() -> None:
    world = await following()
    await world.notify("topics/a", "brokers/1", "topics/b", "brokers/<default>", V1)
    await world.spawned.ended()
    assert world.notified == ["topic a", "broker 1", "topic b", "broker <default>", "topic old"]


@pytest.mark.parametrize("bad", [None, b"{", b"[]", b'{"version":3,"entity_path":"topics/t"}'])
async def test_what_cannot_be_understood_is_passed_over(
    bad: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    world = await following()
    await world.notify(bad, "topics/a")
    await world.spawned.ended()
    assert world.notified == ["topic a"]
    assert "config_change_0000000000 cannot be read" in caplog.text


async def test_a_quota_of_clients_is_said_to_have_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = await following()
    await world.notify("clients/c")
    await world.spawned.ended()
    assert "quotas of c have no effect" in caplog.text


async def test_what_is_fifteen_minutes_old_goes_when_the_next_comes() -> None:
    world = await following()
    await world.notify("topics/a")
    world.now_ms += 1
    await world.notify("topics/b")
    await world.spawned.ended()
    world.now_ms = 1000 + PURGE_MS + 1
    await world.notify("topics/c")
    await world.spawned.ended()
    assert await world.count() == 2
    assert world.notified == ["topic a", "topic b", "topic c"]


async def test_a_broker_that_starts_purges_but_ignores_past_notifications() -> None:
    world = await World().connect()
    await world.notify("topics/a")
    world.now_ms += PURGE_MS + 1
    await world.notify("topics/b")
    await world.start()
    assert (world.notified, await world.count()) == ([], 1)


async def test_in_a_new_session_anything_may_have_changed() -> None:
    world = await following()
    world.zookeeper.suspend(world.session)
    await world.notify("topics/a")
    for name in (await world.tool.children(ConfigChange.directory()))[0]:
        await world.tool.delete(f"{ConfigChange.directory()}/{name}")  # purged by another broker
    world.zookeeper.expire(world.session)
    world.zookeeper.resume(world.session)
    await world.spawned.ended()
    assert world.notified == ["any"]
    await world.notify("topics/b")
    await world.spawned.ended()
    assert world.notified == ["any", "topic b"]


async def test_in_the_same_session_only_what_was_notified_has_changed() -> None:
    world = await following()
    world.zookeeper.suspend(world.session)
    await world.notify("topics/a")
    world.zookeeper.resume(world.session)
    await world.spawned.ended()
    assert world.notified == ["topic a"]


@pytest.mark.parametrize("method", ["children", "get_many"])
async def test_answer_that_is_lost_in_a_session_that_stays_makes_nobody_deaf(method: str) -> None:
    world = await following()
    world.refusing.refuse(method, *[ConnectionLoss("no answer in time")] * 3)
    await world.notify("topics/a")
    await world.spawned.ended()
    assert world.notified == ["topic a"]
    await world.notify("topics/b")
    await world.spawned.ended()
    assert world.notified == ["topic a", "topic b"]


async def test_changes_that_zookeeper_refused_to_show_are_taken_by_the_next_look() -> None:
    world = await following()
    world.refusing.refuse("children", ZkError("SessionMoved"))
    await world.notify("topics/a")
    await world.spawned.ended()
    await world.notify("topics/b")  # the watch is lost
    assert world.notified == []
    await world.changes.look()
    await world.notify("topics/c")
    await world.spawned.ended()
    assert world.notified == ["topic a", "topic b", "topic c"]
