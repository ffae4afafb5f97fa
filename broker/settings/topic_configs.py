"""The settings of topics: `/config/topics/<t>` over the broker's own, kept up by notifications.

A topic's settings are read before a log of it is opened or made: those of the logs that are here
when the broker starts all at once (`stored_topics`), those of a new one when a control request
names it, which waits for that. From then on they are read again whenever they change
(`config_changes`), and the broker's own may change under them (`broker_configs`).

Where they cannot be understood, those that were known last stay in force, and nothing of the
topic is deleted or compacted: under the broker's own settings a compacted topic would lose to
retention what it is there to keep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from broker.network.purgatory import Wait
from broker.settings.entity_configs import TOPICS, UNREADABLE, Settings, Stored, stored, stored_many
from broker.zk_retry import retry_until_connected
from core_log.config import DELETION_SETTINGS, LogConfig
from protocol.settings import SettingError
from zk.admin_znodes import EntityConfig
from zk.api import ZkSession

logger = logging.getLogger(__name__)

READ_AT_ONCE = 100
"""Topics whose settings are asked for, and understood, in one turn."""

KAFKAS = LogConfig()
"""Settings to try others with."""


@attrs.frozen
class TopicSettings:
    """A topic's own settings, as far as they are understood, and which write of its node they are.

    `is_doubtful`: one by which records are deleted is not among them.
    """

    overrides: Settings = attrs.field(factory=dict)
    is_doubtful: bool = False
    mzxid: int = 0

    def over(self, defaults: LogConfig) -> LogConfig:
        """What the topic's logs are held to by a broker with these settings."""
        config = defaults
        if self.overrides:
            config = LogConfig.from_properties(defaults, self.overrides)
        return config.keeping_all() if self.is_doubtful else config


NO_SETTINGS = TopicSettings()


@attrs.define(eq=False)
class _Reading:
    """What one request waits for."""

    unread: set[str]


@attrs.define(eq=False)
class TopicConfigs:
    """`touch` wakes requests that wait for settings to be read; `changed` hears of new ones."""

    zk: ZkSession
    defaults: LogConfig
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    changed: Callable[[str, LogConfig], None] = lambda topic, config: None
    _known: dict[str, TopicSettings] = attrs.field(factory=dict)
    _configs: dict[str, LogConfig] = attrs.field(factory=dict)
    _reading: set[str] = attrs.field(factory=set)
    _awaited: dict[str, list[_Reading]] = attrs.field(factory=dict)

    def get(self, topic: str) -> LogConfig:
        """The settings a log of the topic is held to."""
        return self._configs.get(topic) or self.defaults.keeping_all()

    def overrides(self, topic: str) -> Settings:
        """The topic's own settings."""
        return self._known.get(topic, NO_SETTINGS).overrides

    def is_known(self, topic: str) -> bool:
        """Whether the topic's settings have been read."""
        return topic in self._known

    def load(self, topics: Mapping[str, TopicSettings]) -> None:
        """Take what was read before the broker's logs were opened."""
        for topic, settings in topics.items():
            self._enter(topic, settings)

    def missing(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Those of `topics` whose settings are not known yet; reading them has begun."""
        missing = tuple(sorted({t for t in topics if t not in self._known}))
        unasked = [topic for topic in missing if topic not in self._reading]
        if unasked:
            self._reading.update(unasked)
            self.spawn(self._read_first(unasked))
        return missing

    def when_known(self, topics: Iterable[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        """`answer()`, now or once the settings of `topics` have been read, however late.

        A controller sends again what is not answered in time, and nothing that was refused; so
        while ZooKeeper is away there is no answer. It would be none to give: a broker that cannot
        read there is not registered any more either.
        """
        missing = self.missing(topics)
        if not missing:
            return answer()
        reading = self._await(missing)

        def try_complete(expired: bool) -> Any:
            if not reading.unread:
                return answer()
            return wait if expired else None

        wait = Wait((reading,), timeout_ms, try_complete)
        return wait

    def when_read(self, topics: Iterable[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        """`answer()` once ZooKeeper has been asked again, whatever is known: another broker may
        have changed them, and its notification be on its way."""
        asked = sorted(set(topics))
        if not asked:
            return answer()
        reading = self._await(asked)
        for topic in asked:
            self.spawn(self.read(topic))
        return Wait(
            (reading,),
            timeout_ms,
            lambda expired: answer() if expired or not reading.unread else None,
        )

    def forget(self, topic: str) -> None:
        """The topic is gone; one of the same name begins anew."""
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
        """Take other settings of the broker's own. Whoever calls this sees to the logs."""
        if defaults != self.defaults:
            self.defaults = defaults
            self._configs = {t: known.over(defaults) for t, known in self._known.items()}

    # ---- reading

    async def read(self, topic: str) -> None:
        """Take the topic's settings as they are in ZooKeeper."""
        self._take(topic, await stored(self.zk, TOPICS, topic))

    async def _read_first(self, topics: Sequence[str]) -> None:
        """Take the settings of topics that are new here."""
        try:
            for first in range(0, len(topics), READ_AT_ONCE):
                some = topics[first : first + READ_AT_ONCE]
                for topic, found in zip(
                    some, await stored_many(self.zk, TOPICS, some), strict=True
                ):
                    self._reading.discard(topic)
                    self._take(topic, found)
        finally:
            self._reading.difference_update(topics)

    async def read_again(self) -> None:
        """Take what has changed of all that is known. What has not costs its share of a request."""
        topics = sorted(self._known)
        for first in range(0, len(topics), READ_AT_ONCE):
            some = topics[first : first + READ_AT_ONCE]
            for topic, found in zip(some, await stored_many(self.zk, TOPICS, some), strict=True):
                known = self._known.get(topic)
                if known is not None and known.mzxid != found.mzxid:
                    self._take(topic, found)

    def read_unreadable(self) -> None:
        """Try again to read what ZooKeeper refused. To be called now and then."""
        for topic, known in self._known.items():
            if known.mzxid == UNREADABLE.mzxid:
                self.topic_changed(topic)

    def _take(self, topic: str, found: Stored) -> None:
        before = self._known.get(topic, NO_SETTINGS)
        self._enter(topic, understood(topic, found, before))
        self.changed(topic, self._configs[topic])
        for reading in self._awaited.pop(topic, ()):
            reading.unread.discard(topic)
            if not reading.unread:
                self.touch(reading)

    def _enter(self, topic: str, settings: TopicSettings) -> None:
        self._known[topic] = settings
        self._configs[topic] = settings.over(self.defaults)

    def _await(self, topics: Iterable[str]) -> _Reading:
        reading = _Reading(set(topics))
        for topic in reading.unread:
            self._awaited.setdefault(topic, []).append(reading)
        return reading


async def read_all_topic_settings(zk: ZkSession) -> dict[str, TopicSettings]:
    """The settings of all topics that have some, as they are now.

    Recovery has to know which of them are compacted: such logs may lack any offset.
    """
    topics, _ = await retry_until_connected(zk, lambda: zk.children(EntityConfig.directory(TOPICS)))
    settings: dict[str, TopicSettings] = {}
    for first in range(0, len(topics), READ_AT_ONCE):
        some = topics[first : first + READ_AT_ONCE]
        for topic, found in zip(some, await stored_many(zk, TOPICS, some), strict=True):
            settings[topic] = understood(topic, found, NO_SETTINGS)
    return settings


def understood(topic: str, found: Stored, before: TopicSettings) -> TopicSettings:
    """What counts of the settings that were found, where `before` was in force.

    One that cannot be understood is named, and stays as it was.
    """
    if found.settings is None:
        _doubt(topic, "the settings")
        return attrs.evolve(before, is_doubtful=True, mzxid=found.mzxid)
    if _fault(found.settings) is None:
        return TopicSettings(found.settings, mzxid=found.mzxid)

    overrides: dict[str, str] = {}
    is_doubtful = False
    for name, value in found.settings.items():
        fault = _fault({name: value})
        if fault is None:
            overrides[name] = value
            continue
        logger.error("topic %s: ignoring its setting %s", topic, fault)
        if name in before.overrides:
            overrides[name] = before.overrides[name]
        if name in DELETION_SETTINGS:
            is_doubtful = True
            _doubt(topic, name)
    return TopicSettings(overrides, is_doubtful, found.mzxid)


def _fault(settings: Settings) -> SettingError | None:
    try:
        LogConfig.from_properties(KAFKAS, settings)
    except SettingError as error:
        return error
    return None


def _doubt(topic: str, what: str) -> None:
    logger.error(
        "topic %s: nothing of it is deleted or compacted before %s can be understood", topic, what
    )
