"""The settings of topics: `/config/topics/<t>` over the broker's own, kept up by notifications.

A topic's settings are read when a replica of it first comes here, before its log is made: a
control request waits for that. From then on they are read again whenever they change
(`config_changes`), and the broker's own may change under them (`broker_configs`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable
from typing import Any

import attrs

from broker.entity_configs import TOPICS, Settings, stored
from broker.purgatory import Wait
from core_log.config import LogConfig
from protocol.settings import SettingError
from zk.api import ZkSession

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class TopicConfigs:
    """`touch` wakes requests that wait for ("config", topic); `changed` hears of new settings."""

    zk: ZkSession
    defaults: LogConfig
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    changed: Callable[[str, LogConfig], None] = lambda topic, config: None
    _known: dict[str, tuple[LogConfig, Settings]] = attrs.field(factory=dict)
    _reading: set[str] = attrs.field(factory=set)

    def get(self, topic: str) -> LogConfig:
        """The settings a log of the topic is held to."""
        found = self._known.get(topic)
        return found[0] if found else self.defaults

    def overrides(self, topic: str) -> Settings:
        """The topic's own settings."""
        found = self._known.get(topic)
        return found[1] if found else {}

    def missing(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Those of `topics` whose settings are not known yet; reading them has begun."""
        missing = tuple(sorted({t for t in topics if t not in self._known}))
        for topic in missing:
            if topic not in self._reading:
                self._reading.add(topic)
                self.spawn(self.read(topic))
        return missing

    def when_known(self, topics: Iterable[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        """`answer()`, now or once the settings of `topics` have been read."""
        missing = self.missing(topics)
        if not missing:
            return answer()

        def try_complete(expired: bool) -> Any:
            return answer() if expired or all(t in self._known for t in missing) else None

        return Wait(tuple(("config", t) for t in missing), timeout_ms, try_complete)

    def when_read(self, topics: Iterable[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        """`answer()` once ZooKeeper has been asked again, whatever is known: another broker may
        have changed them, and its notification be on its way."""
        unread, all_read = set(topics), object()
        if not unread:
            return answer()

        async def read(topic: str) -> None:
            await self.read(topic)
            unread.discard(topic)
            if not unread:
                self.touch(all_read)

        for topic in sorted(unread):
            self.spawn(read(topic))
        return Wait(
            (all_read,), timeout_ms, lambda expired: answer() if expired or not unread else None
        )

    def forget(self, topic: str) -> None:
        """The topic is gone; one of the same name begins anew."""
        self._known.pop(topic, None)

    # ---- changes

    def topic_changed(self, topic: str) -> None:
        """A topic's settings are others now."""
        if topic in self._known:
            self.spawn(self.read(topic))

    def any_changed(self) -> None:
        """Any topic's settings may be others now."""
        for topic in self._known:
            self.topic_changed(topic)

    def set_defaults(self, defaults: LogConfig) -> None:
        """The broker's own settings are others now. Whoever says so sees to the logs."""
        self.defaults = defaults
        for topic, (_, overrides) in self._known.items():
            self._known[topic] = (understood(topic, overrides, self.defaults), overrides)

    async def read(self, topic: str) -> None:
        """Take the topic's settings as they are in ZooKeeper."""
        try:
            overrides = await stored(self.zk, TOPICS, topic)
        finally:
            self._reading.discard(topic)
        config = understood(topic, overrides, self.defaults)
        self._known[topic] = (config, overrides)
        self.changed(topic, config)
        self.touch(("config", topic))


def understood(topic: str, overrides: Settings, defaults: LogConfig) -> LogConfig:
    """The settings that can be understood; each of the others is named and left out."""
    if not overrides:
        return defaults
    good: dict[str, str] = {}
    for name, value in overrides.items():
        try:
            LogConfig.from_properties(defaults, {name: value})
            good[name] = value
        except SettingError as error:
            logger.error("topic %s: ignoring its setting %s", topic, error)
    return LogConfig.from_properties(defaults, good)
