"""The changed settings of this broker: `/config/brokers`.

They are read when the broker starts, and again whenever a notification names them
(`config_changes`). A setting that is not understood, or cannot change here, is named in the log and
keeps its value, unless the others rule that out. While that is a setting by which records are
deleted, none are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import TOPIC_DEFAULTS, apply_dynamic, refuse_contradiction
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

    def refuse_contradiction(self, entity: str, settings: Settings) -> None:
        """Raise SettingError for settings of one broker, or of all, that cannot take effect here.

        A value that is wrong by itself is not looked at.
        """
        if entity != DEFAULT_ENTITY:
            refuse_contradiction(self.static, {**self.cluster, **settings})
            return

        # A broker has those for all brokers alone, or under its own.
        refuse_contradiction(self.static, settings)
        refuse_contradiction(self.static, {**settings, **self.own})

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

        A setting that is not understood keeps its value from `before`, if that is possible beside
        the others. The flag is True if one of those is a setting by which records are deleted.
        """
        # The node as a whole may be unreadable: what was known stands, as far as it still can.
        settings = before if stored.settings is None else stored.settings
        is_doubtful = stored.settings is None
        if self._find_error({**overridden, **settings}) is None:
            return settings, is_doubtful

        # Try each beside those before it: some exclude each other.
        valid: dict[str, str] = {}
        for name, value in settings.items():
            error = self._find_error({**overridden, **valid, name: value})
            if error is None:
                valid[name] = value
                continue

            logger.error("ignoring a setting that is stored for brokers: %s", error)
            if name in before:
                with_earlier = {**valid, name: before[name]}
                if self._find_error({**overridden, **with_earlier}) is None:
                    valid = with_earlier
            # Retention by a value that nobody meant would delete records for good.
            is_doubtful |= TOPIC_DEFAULTS.get(name) in DELETION_SETTINGS
        return valid, is_doubtful

    def _find_error(self, dynamic: Settings) -> SettingError | None:
        try:
            apply_dynamic(self.static, dynamic)
        except SettingError as error:
            return error
        return None
