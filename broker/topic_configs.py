"""The settings of topics: `/config/topics/<t>` over the broker's own, kept up by notifications.

A topic's settings are read when a replica of it first comes here, before its log is made: a
control request waits for that. From then on `/config/changes` says which entity changed, and the
entity is read again (the notification never carries the values).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping
from typing import Any

import attrs

from broker.purgatory import Wait
from broker.zk_retry import retry_until_connected
from core_log.config import LogConfig
from protocol.settings import SettingError
from zk.api import NoNode, SessionExpired, SessionState, WatchEvent, ZkError, ZkSession
from zk.znodes import ConfigChange, EntityConfig, ZnodeError

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class TopicConfigs:
    """`touch` wakes requests that wait for ("config", topic); `changed` hears of new settings."""

    zk: ZkSession
    defaults: LogConfig
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    changed: Callable[[str, LogConfig], None] = lambda topic, config: None
    _known: dict[str, tuple[LogConfig, dict[str, str]]] = attrs.field(factory=dict)
    _reading: set[str] = attrs.field(factory=set)
    _last_change: int | None = None

    async def start(self) -> None:
        """Begin to follow the notifications; those of the past say nothing new."""
        self.zk.add_state_listener(self._session_changed)
        await self._read_changes()

    def get(self, topic: str) -> LogConfig:
        """The settings a log of the topic is held to."""
        found = self._known.get(topic)
        return found[0] if found else self.defaults

    def overrides(self, topic: str) -> Mapping[str, str]:
        """The topic's own settings."""
        found = self._known.get(topic)
        return found[1] if found else {}

    def missing(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Those of `topics` whose settings are not known yet; reading them has begun."""
        missing = tuple(sorted({t for t in topics if t not in self._known}))
        for topic in missing:
            self._read_soon(topic)
        return missing

    def when_known(self, topics: Iterable[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        """`answer()`, now or once the settings of `topics` have been read."""
        missing = self.missing(topics)
        if not missing:
            return answer()

        def try_complete(expired: bool) -> Any:
            return answer() if expired or all(t in self._known for t in missing) else None

        return Wait(tuple(("config", t) for t in missing), timeout_ms, try_complete)

    def forget(self, topic: str) -> None:
        """The topic is gone; one of the same name begins anew."""
        self._known.pop(topic, None)

    def _read_soon(self, topic: str) -> None:
        if topic not in self._reading:
            self._reading.add(topic)
            self.spawn(self._read(topic))

    async def _read(self, topic: str) -> None:
        try:
            overrides = await self._stored(topic)
        finally:
            self._reading.discard(topic)
        config = self._checked(topic, overrides)
        self._known[topic] = (config, overrides)
        self.changed(topic, config)
        self.touch(("config", topic))

    async def _stored(self, topic: str) -> dict[str, str]:
        """Ask for as long as ZooKeeper is away: under the broker's own settings a compacted topic
        would lose to retention what it is there to keep."""
        path = EntityConfig.path("topics", topic)
        while True:
            try:
                data, _ = await retry_until_connected(self.zk, lambda: self.zk.get(path))
                return dict(EntityConfig.decode(data).config)
            except NoNode:
                return {}
            except (ZkError, ZnodeError) as error:
                ended = isinstance(error, SessionExpired)
                if ended and self.zk.state is not SessionState.CLOSED:
                    continue  # another session follows
                logger.error("the settings of topic %s cannot be read: %s", topic, error)
                return {}

    def _checked(self, topic: str, overrides: dict[str, str]) -> LogConfig:
        """The settings that can be understood; each of the others is named and left out."""
        good: dict[str, str] = {}
        for name, value in overrides.items():
            try:
                LogConfig.from_properties(self.defaults, {name: value})
                good[name] = value
            except SettingError as error:
                logger.error("topic %s: ignoring its setting %s", topic, error)
        return LogConfig.from_properties(self.defaults, good)

    # ---- notifications

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self.spawn(self._read_changes())

    def _watched(self, event: WatchEvent) -> None:
        self.spawn(self._read_changes())

    async def _read_changes(self) -> None:
        """Take what is new. A change counts as taken when it is: what cannot be read for want of
        a connection is read once there is one again."""
        try:
            names, _ = await self.zk.children(ConfigChange.directory(), watch=self._watched)
            if self._last_change is None:
                self._last_change = max(map(_sequence, names), default=-1)
            for name in names:
                if _sequence(name) > self._last_change:
                    await self._take_change(name)
                    self._last_change = max(self._last_change, _sequence(name))
        except ZkError as error:
            logger.warning("configuration changes cannot be read: %s", error)

    async def _take_change(self, name: str) -> None:
        try:
            data, _ = await self.zk.get(f"{ConfigChange.directory()}/{name}")
            kind, _, entity = ConfigChange.decode(data).entity_path.partition("/")
        except (NoNode, ZnodeError) as error:
            logger.warning("configuration change %s cannot be read: %s", name, error)
            return
        if kind == "topics" and entity in self._known:
            self._read_soon(entity)


def _sequence(name: str) -> int:
    return int(name[-10:]) if name[-10:].isdigit() else -1
