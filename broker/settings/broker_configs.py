"""The changed settings of this broker: `/config/brokers`.

They are read when the broker starts, and again whenever a notification names them
(`config_changes`). A setting that is not understood, or cannot change here, is named in the log and
keeps its value, unless the others rule that out. While that is a setting by which records are
deleted, none are.

Passwords of this broker are encrypted in ZooKeeper (`password_encoder`), and nowhere else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import (
    LISTENERS,
    TOPIC_DEFAULTS,
    apply_dynamic,
    is_listener_limit,
    refuse_contradiction,
    refuse_other_protocols,
)
from broker.settings.entity_configs import (
    BROKERS,
    UNREADABLE,
    Settings,
    StoredSettings,
    read_settings,
)
from broker.settings.listener_settings import PREFIX
from broker.settings.password_encoder import PasswordError
from core_log.config import DELETION_SETTINGS
from protocol.settings import SettingError, is_secret
from zk.api import ZkSession
from zk.znodes import DEFAULT_ENTITY

logger = logging.getLogger(__name__)

NOT_FOR_ALL_BROKERS = (
    "Cannot update these configs at default cluster level, per-broker configs must be specified"
)


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
    _passwords: dict[tuple[str, str], str] = attrs.field(factory=dict, repr=False)
    """Encrypted text by the setting's name and the password."""
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
            after = {**self.cluster, **settings}
            refuse_contradiction(self.static, after)
            # A listener that was added has its protocol too (fault strangers-133).
            refuse_other_protocols(self.now, self.static, after)
            return
        for name in settings:
            is_of_listener = name.startswith(PREFIX) and not is_listener_limit(name)
            if is_of_listener or name in LISTENERS:
                raise SettingError(name, NOT_FOR_ALL_BROKERS)

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
        if own.settings is not None:
            own = attrs.evolve(own, settings=self.decrypt(own.settings, drop_unknown=True))

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

    # ---- passwords

    def decrypt(self, stored: Settings, *, drop_unknown: bool = False) -> dict[str, str]:
        """Return this broker's settings with readable passwords.

        One that cannot be decrypted is logged and dropped, or else stays as it is.
        """
        settings = {}
        known = {(name, text): password for (name, password), text in self._passwords.items()}
        for name, text in stored.items():
            if not is_secret(name):
                settings[name] = text
                continue
            try:
                password = known.get((name, text))
                if password is None:
                    password = self.static.password_encoder.decode(text)
                settings[name] = password
                self._passwords[name, password] = text
            except PasswordError as error:
                if drop_unknown:
                    logger.error("ignoring the stored setting %s: %s", name, error)
                else:
                    settings[name] = text
                    self._passwords[name, text] = text
        return settings

    def encrypt(self, settings: Settings) -> dict[str, str]:
        """Return this broker's settings for ZooKeeper. Raises SettingError without a secret."""
        stored = dict(settings)
        for name, password in settings.items():
            if is_secret(name):
                # The same password keeps its text, so that an unchanged setting is unchanged.
                text = self._passwords.get((name, password))
                if text is None:
                    text = self.static.password_encoder.encode(password)
                    self._passwords[name, password] = text
                stored[name] = text
        return stored

    # ---- validity

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
        for part in _parts_of(settings):
            error = self._find_error({**overridden, **valid, **part})
            if error is None:
                valid |= part
                continue

            logger.error("ignoring a setting that is stored for brokers: %s", error)
            earlier = {name: before[name] for name in part if name in before}
            if self._find_error({**overridden, **valid, **earlier}) is None:
                valid |= earlier
            # Retention by a value that nobody meant would delete records for good.
            is_doubtful |= any(TOPIC_DEFAULTS.get(name) in DELETION_SETTINGS for name in part)
        return valid, is_doubtful

    def _find_error(self, dynamic: Settings) -> SettingError | None:
        try:
            apply_dynamic(self.static, dynamic)
        except SettingError as error:
            return error
        return None


def _parts_of(settings: Settings) -> list[dict[str, str]]:
    """Return the settings one by one, but those of listeners, which need each other, together."""
    alone = [{name: value} for name, value in settings.items() if name not in LISTENERS]
    # Behind their stores. One by one none of them might be valid (fault strangers-132, was: {}).
    together = {name: settings[name] for name in LISTENERS if name in settings}
    return [*alone, together] if together else alone
