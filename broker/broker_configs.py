"""The settings of this broker that changed since it was started: `/config/brokers`.

Read when it starts, and again whenever a notification says so (`config_changes`). What is not
understood, or cannot change here, is named in the log and left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.config import BrokerConfig
from broker.dynamic_config import in_force
from broker.entity_configs import BROKERS, Settings, stored
from protocol.settings import SettingError
from zk.admin_znodes import DEFAULT_ENTITY
from zk.api import ZkSession

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

    async def read(self) -> None:
        """Take the settings as they are in ZooKeeper."""
        self.cluster = self._understood(await self._stored(DEFAULT_ENTITY), {})
        own = await self._stored(str(self.static.broker_id))
        self.own = self._understood(own, self.cluster)
        self.now = in_force(self.static, {**self.cluster, **self.own})
        self.changed(self.now)

    async def _stored(self, entity: str) -> Settings:
        return await stored(self.zk, BROKERS, entity)

    def _understood(self, found: Settings, under: Settings) -> Settings:
        """What can be, together with the settings it stands over."""
        good: dict[str, str] = {}
        for name, value in found.items():
            try:
                in_force(self.static, {**under, **good, name: value})
                good[name] = value
            except SettingError as error:
                logger.error("ignoring what is stored for brokers: %s", error)
        return good
