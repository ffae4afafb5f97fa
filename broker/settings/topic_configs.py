"""The settings of topics: `/config/topics/<t>` over the broker's own, updated by notifications.

A topic's settings are read before a log of it is opened or created. For the logs that are here when
the broker starts, all are read at once (`read_all_topic_settings`). For a new log they are read
when a control request names the topic, and the request waits. From then on they are read again on
every change (`config_changes`), and the broker's own may change under them (`broker_configs`).

Settings that cannot be understood leave the last known ones in effect, and nothing of the topic is
deleted or compacted. Under the broker's own settings a compacted topic would lose to retention what
it is meant to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from broker.process.zk_retry import PATIENCE_MS, retry_until_connected
from broker.settings.entity_configs import (
    TOPICS,
    UNREADABLE,
    Settings,
    StoredSettings,
    read_many_settings,
    read_settings,
)
from core_log.config import DELETION_SETTINGS, LogConfig
from protocol.frozen import frozen
from protocol.settings import SettingError
from zk.admin_znodes import EntityConfig
from zk.api import ZkSession

logger = logging.getLogger(__name__)

READ_AT_ONCE = 100
"""The topics whose settings are read and parsed in one turn."""

KAFKA_DEFAULTS = LogConfig()
"""The settings with which others are tried."""


@frozen
class TopicSettings:
    """A topic's own settings, as far as they are understood, and the `mzxid` of their node.

    `is_doubtful` is True if a setting by which records are deleted is not understood.
    """

    overrides: Settings = attrs.field(factory=dict)
    is_doubtful: bool = False
    mzxid: int = 0

    def over(self, defaults: LogConfig) -> LogConfig:
        """Return the config of the topic's logs on a broker with these defaults."""
        config = defaults
        if self.overrides:
            config = LogConfig.from_properties(defaults, self.overrides)
        return config.keeping_all() if self.is_doubtful else config


NO_SETTINGS = TopicSettings()


@attrs.define(eq=False)
class _Reading:
    """The topics that one request still waits for."""

    unread: set[str]


@attrs.define(eq=False)
class TopicConfigs:
    """The settings of the topics that have logs on this broker.

    `touch` wakes requests that wait for settings. `changed(topic, config)` is called whenever
    settings were read.
    """

    zk: ZkSession
    defaults: LogConfig
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    changed: Callable[[str, LogConfig], None] = lambda topic, config: None
    _known: dict[str, TopicSettings] = attrs.field(factory=dict)
    _configs: dict[str, LogConfig] = attrs.field(factory=dict)
    _in_flight: set[str] = attrs.field(factory=set)
    _readings: dict[str, list[_Reading]] = attrs.field(factory=dict)

    # ---- what is known

    def get(self, topic: str) -> LogConfig:
        """Return the config of the topic's logs."""
        # Unknown: the broker's own, but nothing is deleted by them.
        return self._configs.get(topic) or self.defaults.keeping_all()

    def overrides(self, topic: str) -> Settings:
        """Return the topic's own settings."""
        return self._known.get(topic, NO_SETTINGS).overrides

    def is_known(self, topic: str) -> bool:
        """True if the topic's settings have been read."""
        return topic in self._known

    def load(self, topics: Mapping[str, TopicSettings]) -> None:
        """Take the settings that were read before the broker's logs were opened."""
        for topic, settings in topics.items():
            self._set(topic, settings)

    # ---- requests that wait

    def read_missing(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Return those of `topics` whose settings are not known yet, and start to read them."""
        missing = tuple(sorted({topic for topic in topics if topic not in self._known}))

        # A topic in flight is read once, however many requests name it.
        new = [topic for topic in missing if topic not in self._in_flight]
        if new:
            self._in_flight.update(new)
            self.spawn(self._read_first(new))
        return missing

    def when_known(
        self, topics: Iterable[str], respond: Callable[[], Outcome], timeout_ms: int
    ) -> Outcome:
        """Return `respond()`, or a Wait for it until the settings of `topics` have been read.

        The wait has no end: a controller repeats a request without a response, but not one that
        was refused. While ZooKeeper is away a response would be useless anyway, because a broker
        that cannot read there is not registered either.
        """
        missing = self.read_missing(topics)
        if not missing:
            return respond()
        reading = self._add_reading(missing)

        def try_complete(expired: bool) -> Outcome | None:
            if not reading.unread:
                return respond()
            # Its time is up: wait as long again.
            return wait if expired else None

        wait = Wait((reading,), timeout_ms, try_complete)
        return wait

    def when_read(self, topics: Iterable[str], respond: Callable[[], Outcome]) -> Outcome:
        """Return a Wait for `respond()` until the settings have been read again, known or not.

        Another broker may have changed them, with the notification still on its way. A ZooKeeper
        that is silent is not waited for: the known ones are in effect, and their client would take
        this broker for the silent one.
        """
        names = sorted(set(topics))
        if not names:
            return respond()

        # Register before the reads begin, so that none of them is missed.
        reading = self._add_reading(names)
        for topic in names:
            self.spawn(self.read(topic))

        def try_complete(expired: bool) -> Outcome | None:
            if not reading.unread or (expired and self.zk.silence_ms >= PATIENCE_MS):
                return respond()
            # It answers, and has much to read.
            return wait if expired else None

        wait = Wait((reading,), PATIENCE_MS, try_complete)
        return wait

    def forget(self, topic: str) -> None:
        """Remove a topic that is gone. Another one of its name is read again."""
        self._known.pop(topic, None)
        self._configs.pop(topic, None)

    # ---- changes

    def topic_changed(self, topic: str) -> None:
        """Call this when a topic's settings changed."""
        if topic in self._known:
            self.spawn(self.read(topic))

    def any_changed(self) -> None:
        """Call this when any topic's settings may have changed."""
        self.spawn(self.read_again())

    def set_defaults(self, defaults: LogConfig) -> None:
        """Replace the broker's own settings. The caller updates the logs."""
        if defaults != self.defaults:
            self.defaults = defaults
            self._configs = {
                topic: settings.over(defaults) for topic, settings in self._known.items()
            }

    # ---- reading

    async def read(self, topic: str) -> None:
        """Read the topic's settings from ZooKeeper."""
        self._update(topic, await read_settings(self.zk, TOPICS, topic))

    async def _read_first(self, topics: Sequence[str]) -> None:
        """Read the settings of topics that are new here."""
        try:
            for first in range(0, len(topics), READ_AT_ONCE):
                chunk = topics[first : first + READ_AT_ONCE]
                settings = await read_many_settings(self.zk, TOPICS, chunk)
                for topic, stored in zip(chunk, settings, strict=True):
                    self._in_flight.discard(topic)
                    self._update(topic, stored)
        finally:
            # If this ends early, the next request reads again.
            self._in_flight.difference_update(topics)

    async def read_again(self) -> None:
        """Read all known settings, and update the changed ones."""
        topics = sorted(self._known)
        for first in range(0, len(topics), READ_AT_ONCE):
            chunk = topics[first : first + READ_AT_ONCE]
            settings = await read_many_settings(self.zk, TOPICS, chunk)
            for topic, stored in zip(chunk, settings, strict=True):
                # A topic may be forgotten meanwhile.
                known = self._known.get(topic)
                if known is not None and known.mzxid != stored.mzxid:
                    self._update(topic, stored)

    def read_unreadable(self) -> None:
        """Try again to read settings that ZooKeeper refused. Call this from time to time."""
        for topic, settings in self._known.items():
            if settings.mzxid == UNREADABLE.mzxid:
                self.topic_changed(topic)

    def _update(self, topic: str, stored: StoredSettings) -> None:
        before = self._known.get(topic, NO_SETTINGS)
        self._set(topic, select_valid(topic, stored, before))
        self.changed(topic, self._configs[topic])

        # Wake the requests that have all their topics now.
        for reading in self._readings.pop(topic, ()):
            reading.unread.discard(topic)
            if not reading.unread:
                self.touch(reading)

    def _set(self, topic: str, settings: TopicSettings) -> None:
        self._known[topic] = settings
        self._configs[topic] = settings.over(self.defaults)

    def _add_reading(self, topics: Iterable[str]) -> _Reading:
        reading = _Reading(set(topics))
        for topic in reading.unread:
            self._readings.setdefault(topic, []).append(reading)
        return reading


async def read_all_topic_settings(zk: ZkSession) -> dict[str, TopicSettings]:
    """Read the settings of all topics that have some.

    Recovery must know which topics are compacted: their logs may lack any offset.
    """
    topics, _ = await retry_until_connected(zk, lambda: zk.children(EntityConfig.directory(TOPICS)))
    settings: dict[str, TopicSettings] = {}
    for first in range(0, len(topics), READ_AT_ONCE):
        chunk = topics[first : first + READ_AT_ONCE]
        many_stored = await read_many_settings(zk, TOPICS, chunk)
        for topic, stored in zip(chunk, many_stored, strict=True):
            settings[topic] = select_valid(topic, stored, NO_SETTINGS)
    return settings


def select_valid(topic: str, stored: StoredSettings, before: TopicSettings) -> TopicSettings:
    """Return the settings that take effect, where `before` was in effect.

    A setting that is not understood is logged, and keeps its value.
    """
    if stored.settings is None:
        # The node as a whole cannot be parsed, or read.
        _log_doubt(topic, "the settings")
        return attrs.evolve(before, is_doubtful=True, mzxid=stored.mzxid)
    if _find_error(stored.settings) is None:
        return TopicSettings(stored.settings, mzxid=stored.mzxid)

    # At least one setting is invalid: look at each.
    overrides: dict[str, str] = {}
    is_doubtful = False
    for name, value in stored.settings.items():
        error = _find_error({name: value})
        if error is None:
            overrides[name] = value
            continue

        logger.error("topic %s: ignoring its setting %s", topic, error)
        if name in before.overrides:
            overrides[name] = before.overrides[name]

        # Retention by another value would delete records for good.
        if name in DELETION_SETTINGS:
            is_doubtful = True
            _log_doubt(topic, name)
    return TopicSettings(overrides, is_doubtful, stored.mzxid)


def _find_error(settings: Settings) -> SettingError | None:
    try:
        LogConfig.from_properties(KAFKA_DEFAULTS, settings)
    except SettingError as error:
        return error
    return None


def _log_doubt(topic: str, subject: str) -> None:
    logger.error(
        "topic %s: nothing of it is deleted or compacted before %s can be understood",
        topic,
        subject,
    )
