"""The settings of this broker that changed since it was started: `/config/brokers`.

Read when it starts, and again whenever a notification says so (`config_changes`). What is not
understood, or cannot change here, is named in the log and stays as it was; while it is something
by which records are deleted, nothing is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import TOPIC_DEFAULTS, in_force
from broker.settings.entity_configs import BROKERS, UNREADABLE, Settings, Stored, stored
from core_log.config import DELETION_SETTINGS
from protocol.settings import SettingError
from zk.api import ZkSession
from zk.znodes import DEFAULT_ENTITY

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class BrokerConfigs:
    """`static` is what the broker was started with, `now` what is in force, of which `changed`
    hears; `own` and `cluster` are what ZooKeeper has for this broker, and for all."""

    zk: ZkSession
    static: BrokerConfig
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    changed: Callable[[BrokerConfig], None] = lambda config: None
    own: Settings = attrs.field(factory=dict)
    cluster: Settings = attrs.field(factory=dict)
    now: BrokerConfig = attrs.field(init=False)
    _is_unreadable: bool = False

    @now.default
    def _as_started(self) -> BrokerConfig:
        return self.static

    def broker_changed(self, entity: str) -> None:
        """The settings of a broker, or of all, are others now."""
        if entity in (DEFAULT_ENTITY, str(self.static.broker_id)):
            self.spawn(self.read())

    def any_changed(self) -> None:
        """Any broker's settings may be others now."""
        self.spawn(self.read())

    def read_unreadable(self) -> None:
        """Try again to read what ZooKeeper refused. To be called now and then."""
        if self._is_unreadable:
            self.any_changed()

    async def read(self) -> None:
        """Take the settings as they are in ZooKeeper."""
        cluster = await stored(self.zk, BROKERS, DEFAULT_ENTITY)
        own = await stored(self.zk, BROKERS, str(self.static.broker_id))
        self._is_unreadable = UNREADABLE in (cluster, own)
        self.cluster, doubtful = self._understood(cluster, {}, self.cluster)
        self.own, own_doubtful = self._understood(own, self.cluster, self.own)
        now = in_force(self.static, {**self.cluster, **self.own})
        if doubtful or own_doubtful:
            logger.error("nothing is deleted or compacted before these settings can be understood")
            now = attrs.evolve(now, log=now.log.keeping_all())
        self.now = now
        self.changed(now)

    def _understood(
        self, found: Stored, under: Settings, before: Settings
    ) -> tuple[Settings, bool]:
        """What counts of the settings that were found, together with those they stand over; and
        whether one is not understood by which records are deleted. It stays as it was before."""
        if found.settings is None:
            return before, True
        good: dict[str, str] = {}
        is_doubtful = False
        for name, value in found.settings.items():
            try:
                in_force(self.static, {**under, **good, name: value})
                good[name] = value
            except SettingError as error:
                logger.error("ignoring what is stored for brokers: %s", error)
                if name in before:
                    good[name] = before[name]
                is_doubtful |= TOPIC_DEFAULTS.get(name) in DELETION_SETTINGS
        return good, is_doubtful
