"""The settings of topics: read before a log is created, and again on a notification."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

import attrs
import pytest

from broker.network.purgatory import Wait
from broker.settings.config_changes import ConfigChanges
from broker.settings.topic_configs import (
    READ_AT_ONCE,
    TopicConfigs,
    TopicSettings,
    read_all_topic_settings,
)
from core_log.config import LogConfig
from tests.broker.refusing_session import RefusingSession
from tests.broker.spawning import Spawned
from zk.api import ZkError
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import STARTUP_PATHS, ConfigChange, EntityConfig

DEFAULTS = LogConfig(segment_ms=77)


@attrs.define(eq=False)
class TopicConfigStage:
    """A broker's view of the settings, and a tool's session that changes them."""

    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    spawned: Spawned = attrs.field(factory=Spawned)
    touched: list[Hashable] = attrs.field(factory=list)
    changes: list[tuple[str, int]] = attrs.field(factory=list)
    session: MemorySession = attrs.field(init=False)
    refusing: RefusingSession = attrs.field(init=False)
    tool: MemorySession = attrs.field(init=False)
    configs: TopicConfigs = attrs.field(init=False)

    async def start(self) -> TopicConfigStage:
        self.session, self.tool = self.zookeeper.session(), self.zookeeper.session()
        await self.session.start()
        await self.tool.start()
        for path in STARTUP_PATHS:
            await self.tool.ensure_path(path)
        self.refusing = RefusingSession(self.session)
        self.configs = TopicConfigs(
            self.refusing.session,
            DEFAULTS,
            self.spawned,
            self.touched.append,
            lambda topic, config: self.changes.append((topic, config.retention_ms)),
        )
        await ConfigChanges(
            self.session,
            self.spawned,
            {"topics": self.configs.topic_changed},
            self.configs.any_changed,
        ).start()
        return self

    async def set(self, topic: str, notify: bool = True, **config: str) -> None:
        """Write settings as Kafka's tools do: the entity, then the notification."""
        path = EntityConfig.path("topics", topic)
        data = EntityConfig(config={k.replace("_", "."): v for k, v in config.items()}).encode()
        if await self.tool.exists(path):
            await self.tool.set(path, data)
        else:
            await self.tool.create(path, data)
        if notify:
            await self.notify(ConfigChange(entity_path=f"topics/{topic}").encode())

    async def notify(self, data: bytes) -> None:
        path = f"{ConfigChange.directory()}/config_change_"
        await self.tool.create(path, data, sequence=True)

    async def read(self, *topics: str) -> None:
        self.configs.read_missing(topics)
        await self.spawned.ended()


async def test_topic_whose_settings_were_not_read_has_the_brokers_and_keeps_all() -> None:
    stage = await TopicConfigStage().start()
    assert stage.configs.get("t") == DEFAULTS.keeping_all()
    assert stage.configs.overrides("t") == {}


async def test_a_topics_own_settings_stand_over_the_brokers() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", retention_ms="5")
    await stage.read("t")
    config = stage.configs.get("t")
    assert (config.retention_ms, config.segment_ms) == (5, 77)
    assert stage.configs.overrides("t") == {"retention.ms": "5"}


async def test_a_topic_without_settings_of_its_own_is_known_then() -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    assert stage.configs.read_missing(["t"]) == ()
    assert stage.configs.get("t") == DEFAULTS


async def test_what_is_known_is_answered_at_once() -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    assert stage.configs.when_known(["t"], lambda: "answer", 1000) == "answer"


async def test_what_is_not_known_yet_makes_the_answer_wait_until_it_is_read() -> None:
    stage = await TopicConfigStage().start()
    wait = stage.configs.when_known(["t", "u"], lambda: "answer", 1000)
    assert isinstance(wait, Wait)
    assert wait.timeout_ms == 1000
    assert wait.try_complete(False) is None
    await stage.spawned.ended()
    assert wait.try_complete(False) == "answer"


async def test_request_of_many_topics_is_woken_once() -> None:
    stage = await TopicConfigStage().start()
    wait = stage.configs.when_known(map(str, range(100)), lambda: "answer", 1000)
    await stage.spawned.ended()
    assert stage.touched == list(wait.keys)


async def test_when_the_time_is_up_and_nothing_is_known_it_goes_on_waiting() -> None:
    stage = await TopicConfigStage().start()
    wait = stage.configs.when_known(["t"], lambda: "answer", 1000)
    for _ in range(3):
        wait = wait.try_complete(True)
        assert isinstance(wait, Wait)
    await stage.spawned.ended()
    assert wait.try_complete(False) == "answer"


async def test_settings_of_many_new_topics_are_read_some_a_request() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("150", retention_ms="5")
    topics = [str(number) for number in range(2 * READ_AT_ONCE)]
    await stage.read(*topics)
    assert stage.configs.read_missing(topics) == ()
    assert stage.configs.get("150").retention_ms == 5
    assert (stage.refusing.calls["get_many"], stage.refusing.calls["get"]) == (2, 0)


async def test_a_topic_asked_for_twice_meanwhile_is_read_once() -> None:
    stage = await TopicConfigStage().start()
    stage.configs.read_missing(["t"])
    stage.configs.read_missing(["t"])
    assert len(stage.spawned.tasks) == 1
    await stage.spawned.ended()


async def test_a_change_is_heard_of_and_read() -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    await stage.set("t", retention_ms="6")
    await stage.spawned.ended()
    await stage.set("t", retention_ms="7")
    await stage.spawned.ended()
    assert stage.changes == [("t", DEFAULTS.retention_ms), ("t", 6), ("t", 7)]
    assert stage.configs.get("t").retention_ms == 7


async def test_settings_that_are_removed_fall_back_to_the_brokers() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", retention_ms="5")
    await stage.read("t")
    await stage.set("t")
    await stage.spawned.ended()
    assert stage.configs.get("t") == DEFAULTS


async def test_changes_of_what_is_not_here_are_passed_over() -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    await stage.set("u", retention_ms="5")
    await stage.notify(ConfigChange(entity_path="clients/t").encode())
    await stage.spawned.ended()
    assert stage.changes == [("t", DEFAULTS.retention_ms)]


async def test_changes_of_before_the_start_are_not_taken_again() -> None:
    stage = TopicConfigStage()
    early = await TopicConfigStage(zookeeper=stage.zookeeper).start()
    await early.set("t", retention_ms="5")
    await stage.start()
    await stage.read("t")
    assert stage.changes == [("t", 5)]


async def test_a_notification_that_cannot_be_read_does_not_hide_the_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    await stage.notify(b"{")
    await stage.set("t", retention_ms="6")
    await stage.spawned.ended()
    assert stage.configs.get("t").retention_ms == 6
    assert "config_change_0000000000 cannot be read" in caplog.text


async def test_a_setting_that_cannot_be_is_left_out_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", retention_ms="6", segment_bytes="tiny", nonsense="1")
    await stage.read("t")
    assert stage.configs.get("t") == attrs.evolve(DEFAULTS, retention_ms=6)
    assert stage.configs.get("t").deletes
    assert "segment.bytes" in caplog.text
    assert "nonsense" in caplog.text


@pytest.mark.parametrize(
    "bad", ["cleanup_policy", "retention_ms", "retention_bytes", "delete_retention_ms"]
)
async def test_bad_setting_by_which_records_are_deleted_has_all_of_them_kept(
    bad: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", **{bad: "soon", "segment_bytes": "600"})
    await stage.read("t")
    config = stage.configs.get("t")
    assert (config.deletes, config.compacts, config.segment_bytes) == (False, False, 600)
    assert f"before {bad.replace('_', '.')} can be understood" in caplog.text

    await stage.set("t", segment_bytes="600")
    await stage.spawned.ended()
    assert stage.configs.get("t") == attrs.evolve(DEFAULTS, segment_bytes=600)


async def test_bad_setting_leaves_the_one_that_was_known() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", max_message_bytes="700", cleanup_policy="compact")
    await stage.read("t")
    await stage.set("t", max_message_bytes="many", cleanup_policy="compakt")
    await stage.spawned.ended()
    config = stage.configs.get("t")
    assert (config.max_message_bytes, config.cleanup_policy) == (700, ("compact",))
    assert not config.compacts


async def test_settings_that_are_not_json_leave_what_was_known_and_keep_all_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", cleanup_policy="compact", max_message_bytes="700")
    await stage.read("t")
    known = stage.configs.get("t")

    await stage.tool.set(EntityConfig.path("topics", "t"), b"{")
    await stage.notify(ConfigChange(entity_path="topics/t").encode())
    await stage.spawned.ended()
    assert stage.configs.get("t") == known.keeping_all()
    assert "the settings in /config/topics/t cannot be understood" in caplog.text

    await stage.set("t", cleanup_policy="compact", max_message_bytes="700")
    await stage.spawned.ended()
    assert stage.configs.get("t") == known


async def test_settings_that_zookeeper_refuses_to_show_are_asked_for_again() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", cleanup_policy="compact")
    stage.refusing.refuse("get_many", ZkError("NoAuth"))
    stage.refusing.refuse("get", ZkError("NoAuth"))
    await stage.read("t")
    assert stage.configs.get("t") == DEFAULTS.keeping_all()

    stage.configs.read_unreadable()
    await stage.spawned.ended()
    assert stage.configs.get("t").compacts
    stage.configs.read_unreadable()
    assert stage.spawned.tasks == []


async def test_who_wants_them_read_again_waits_for_what_is_there_now() -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    await stage.set("t", notify=False, retention_ms="5")
    await stage.set("u", notify=False, retention_ms="6")
    wait = stage.configs.when_read(
        ["t", "u"], lambda: [stage.configs.get(t).retention_ms for t in "tu"]
    )
    assert wait.try_complete(False) is None
    # ZooKeeper answers others, and has much to read.
    assert wait.try_complete(True) is wait
    await stage.spawned.ended()
    assert wait.try_complete(False) == [5, 6]
    assert stage.touched[-1] in wait.keys


async def test_who_wants_them_read_again_has_the_known_ones_while_zookeeper_is_silent() -> None:
    now_ms = 0
    stage = await TopicConfigStage(MemoryZooKeeper(lambda: now_ms)).start()
    await stage.set("t", retention_ms="5")
    await stage.read("t")
    stage.zookeeper.suspend(stage.session)
    wait = stage.configs.when_read(["t"], lambda: stage.configs.get("t").retention_ms)
    assert isinstance(wait, Wait)
    now_ms = wait.timeout_ms
    assert wait.try_complete(False) is None
    assert wait.try_complete(True) == 5
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()


async def test_new_defaults_stand_under_the_topics_own_settings() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", retention_ms="5")
    await stage.read("t")
    stage.configs.set_defaults(LogConfig(retention_ms=1, segment_ms=2))
    config, other = stage.configs.get("t"), stage.configs.get("u")
    assert (config.retention_ms, config.segment_ms) == (5, 2)
    assert (other.retention_ms, other.segment_ms) == (1, 2)


async def test_a_forgotten_topic_is_read_again() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", retention_ms="5")
    await stage.read("t")
    stage.configs.forget("t")
    await stage.set("t", notify=False, retention_ms="6")
    await stage.read("t")
    assert stage.configs.get("t").retention_ms == 6


@pytest.mark.virtual_time
async def test_while_zookeeper_is_away_no_topic_is_taken_to_have_no_settings() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", cleanup_policy="compact")
    stage.zookeeper.suspend(stage.session)
    wait = stage.configs.when_known(["t"], lambda: "answer", 1000)
    reading = stage.spawned.tasks[-1]
    await pauses()
    assert not reading.done()
    assert wait.try_complete(False) is None
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()
    assert wait.try_complete(False) == "answer"
    assert stage.configs.get("t").cleanup_policy == ("compact",)


@pytest.mark.virtual_time
async def test_a_session_that_expires_meanwhile_is_followed_by_the_next() -> None:
    stage = await TopicConfigStage().start()
    await stage.set("t", notify=False, retention_ms="5")
    stage.zookeeper.suspend(stage.session)
    stage.configs.read_missing(["t"])
    await pauses()
    stage.zookeeper.expire(stage.session)
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()
    assert stage.configs.get("t").retention_ms == 5


@pytest.mark.virtual_time
async def test_a_reader_that_is_closed_meanwhile_ends() -> None:
    stage = await TopicConfigStage().start()
    stage.zookeeper.suspend(stage.session)
    stage.configs.read_missing(["t"])
    await pauses()
    await stage.session.close()
    await stage.spawned.ended()


@pytest.mark.parametrize("expires", [False, True])
async def test_a_change_made_while_zookeeper_was_away_is_taken_when_it_is_back(
    expires: bool,
) -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    stage.zookeeper.suspend(stage.session)
    await stage.set("t", retention_ms="6")
    if expires:
        stage.zookeeper.expire(stage.session)
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()
    assert stage.configs.get("t").retention_ms == 6


@pytest.mark.virtual_time
async def test_a_change_that_could_not_be_read_is_taken_when_zookeeper_is_back() -> None:
    stage = await TopicConfigStage().start()
    await stage.read("t")
    await stage.set("t", retention_ms="6")  # its watch has fired; the reading has yet to begin
    stage.zookeeper.suspend(stage.session)
    await pauses()
    assert stage.configs.get("t") == DEFAULTS
    stage.zookeeper.resume(stage.session)
    await stage.spawned.ended()
    assert stage.configs.get("t").retention_ms == 6


async def pauses() -> None:
    """Sleep for a few pauses between two tries, on a clock that jumps."""
    await asyncio.sleep(1)


async def test_the_settings_of_all_topics_are_there_before_any_log_is_opened() -> None:
    session = MemoryZooKeeper().session()
    await session.start()
    for path in STARTUP_PATHS:
        await session.ensure_path(path)
    for topic, config in (("a", {"cleanup.policy": "compact"}), ("b", {"no.such": "1"})):
        data = EntityConfig(config).encode()
        await session.create(EntityConfig.path("topics", topic), data)
    await session.create(EntityConfig.path("topics", "c"), b"{")
    defaults = LogConfig(retention_ms=5)
    configs = {
        t: settings.over(defaults)
        for t, settings in (await read_all_topic_settings(session)).items()
    }
    assert configs["a"].compacts
    assert (configs["a"].retention_ms, configs["b"]) == (5, defaults)
    assert configs["c"] == defaults.keeping_all()
    assert configs["c"].may_have_gaps


async def test_what_was_read_before_the_logs_were_opened_is_not_read_again() -> None:
    stage = await TopicConfigStage().start()
    stage.configs.load({"t": TopicSettings({"retention.ms": "5"})})
    assert stage.configs.when_known(["t"], lambda: "answer", 1000) == "answer"
    assert stage.configs.get("t").retention_ms == 5
    assert stage.spawned.tasks == []


@pytest.mark.parametrize("idle", [10, 1000])
async def test_new_session_makes_news_of_what_changed_and_of_nothing_else(idle: int) -> None:
    stage = await TopicConfigStage().start()
    topics = [str(number) for number in range(idle)]
    for topic in topics:
        await stage.set(topic, notify=False, retention_ms="5")
    await stage.read(*topics)
    await stage.set("3", notify=False, retention_ms="6")
    await stage.tool.delete(EntityConfig.path("topics", "4"))
    stage.changes.clear()
    stage.refusing.calls.clear()

    stage.configs.any_changed()
    await stage.spawned.ended()
    assert stage.changes == [("3", 6), ("4", DEFAULTS.retention_ms)]
    assert stage.refusing.calls == {"get_many": -(-idle // 100)}
