"""The changed settings of this broker: `/config/brokers`.

They are read when the broker starts, and again whenever a notification names them
(`config_changes`). A setting that is not understood, or cannot change here, is named in the log and
keeps its value. While that is a setting by which records are deleted, none are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import TOPIC_DEFAULTS, apply_dynamic
from broker.settings.entity_configs import (
    BROKERS,
    UNREADABLE,
    Settings,
    StoredSettings,
    read_settings,
)
from core_log.config import DELETION_SETTINGS
from protocol.settings import SettingError
from zk.api import ZkSession
from zk.znodes import DEFAULT_ENTITY

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class BrokerConfigs:
    """The settings of this broker, as they are now.

    `static` is the config that the broker was started with. `now` is the effective one, and
    `changed(now)` is called on every change. `own` and `cluster` are the settings in ZooKeeper for
    this broker and for all brokers.
    """

    zk: ZkSession
    static: BrokerConfig
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    changed: Callable[[BrokerConfig], None] = lambda config: None
    own: Settings = attrs.field(factory=dict)
    cluster: Settings = attrs.field(factory=dict)
    now: BrokerConfig = attrs.field(init=False)
    _is_unreadable: bool = False

    @now.default
    def _static_config(self) -> BrokerConfig:
        return self.static

    # ---- changes

    def broker_changed(self, entity: str) -> None:
        """Call this when the settings of one broker, or the defaults of all, changed."""
        if entity in (DEFAULT_ENTITY, str(self.static.broker_id)):
            self.spawn(self.read())

    def any_changed(self) -> None:
        """Call this when any broker's settings may have changed."""
        self.spawn(self.read())

    def read_unreadable(self) -> None:
        """Try again to read settings that ZooKeeper refused. Call this from time to time."""
        if self._is_unreadable:
            self.any_changed()

    # ---- reading

    async def read(self) -> None:
        """Read the settings from ZooKeeper, and put them into effect."""
        # Two nodes: the settings of all brokers, and those of this one.
        cluster = await read_settings(self.zk, BROKERS, DEFAULT_ENTITY)
        own = await read_settings(self.zk, BROKERS, str(self.static.broker_id))
        self._is_unreadable = UNREADABLE in (cluster, own)

        # The broker's own settings override those of all brokers.
        self.cluster, is_cluster_doubtful = self._select_valid(cluster, {}, self.cluster)
        self.own, is_own_doubtful = self._select_valid(own, self.cluster, self.own)
        now = apply_dynamic(self.static, {**self.cluster, **self.own})
        if is_cluster_doubtful or is_own_doubtful:
            # Better too much is kept than too little.
            logger.error("nothing is deleted or compacted before these settings can be understood")
            now = attrs.evolve(now, log=now.log.keeping_all())

        self.now = now
        self.changed(now)

    def _select_valid(
        self, stored: StoredSettings, overridden: Settings, before: Settings
    ) -> tuple[Settings, bool]:
        """Return the settings that take effect, over those in `overridden`.

        A setting that is not understood keeps its value from `before`. The flag is True if one of
        those is a setting by which records are deleted.
        """
        # The node as a whole cannot be read, or parsed.
        if stored.settings is None:
            return before, True

        # Try each beside those before it: some exclude each other.
        valid: dict[str, str] = {}
        is_doubtful = False
        for name, value in stored.settings.items():
            try:
                apply_dynamic(self.static, {**overridden, **valid, name: value})
                valid[name] = value
            except SettingError as error:
                logger.error("ignoring a setting that is stored for brokers: %s", error)
                if name in before:
                    valid[name] = before[name]
                # Retention by a value that nobody meant would delete records for good.
                is_doubtful |= TOPIC_DEFAULTS.get(name) in DELETION_SETTINGS
        return valid, is_doubtful
