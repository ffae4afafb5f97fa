"""The settings of a broker that can change while it runs, and their effective values (KIP-226).

ZooKeeper keeps them for each broker, and once for all brokers. A broker's own settings override
those for all, these override its file, and the file overrides the defaults. The settings that can
change are those that are read each time they matter: the defaults of topics, the limits of
replication quotas and of connections, the cleaner's, and of a listener the limits of its
connections and its stores of TLS (these for one broker only). A change of what has no effect here,
such as the numbers of threads, is kept and described.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import attrs

from broker.settings.accepted_settings import ACCEPTED, REFUSED
from broker.settings.config import LOG_NAMES, BrokerConfig, refuse_impossible_addresses
from broker.settings.connection_settings import (
    LISTENER_LIMITS,
    MAX_CONNECTIONS,
    MAX_CREATION_RATE,
    MAX_PER_IP,
    PER_IP_OVERRIDES,
    convert_limit,
    refuse_impossible_limits,
)
from broker.settings.ineffective_settings import (
    CHANGES_WITHOUT_EFFECT,
    INEFFECTIVE,
    THREADS,
    check_threads,
)
from broker.settings.listener_settings import (
    PREFIX,
    is_listener_setting,
    split_listener_setting,
)
from broker.settings.sasl_config import is_sasl
from broker.settings.tls_settings import DYNAMIC_TLS_SETTINGS
from compaction.config import CleanerConfig, refuse_impossible, refuse_leap
from core_log.config import BROKER_NAME, LogConfig, broker_config
from groups.coordinator.config import GroupConfig
from groups.transactions.config import TransactionsConfig
from offsets.config import OffsetsConfig
from protocol.settings import SettingError, UnknownSetting, declared_settings, load
from protocol.tls.config import ServerTlsConfig

MESSAGE_FORMAT = "log.message.format.version"
"""Not dynamic: with `inter.broker.protocol.version`, all brokers must agree on it at start."""

TOPIC_DEFAULTS: Mapping[str, str] = {
    broker_name: topic_name
    for topic_name, broker_name in BROKER_NAME.items()
    if broker_name != MESSAGE_FORMAT
}
"""Broker setting → the topic setting that it is the default of."""

# Read whenever something is fetched, moved or accepted, so a change needs no restart.
_LIMITS = (
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    MAX_CONNECTIONS,
    MAX_CREATION_RATE,
    MAX_PER_IP,
    PER_IP_OVERRIDES,
)
LISTENERS = ("listeners", "advertised.listeners", "listener.security.protocol.map")
"""The settings by which listeners are opened, shut and advertised, of one broker at a time."""

_OWN_FIELDS: Mapping[str, str] = {
    setting.name: field
    for field, setting in declared_settings(BrokerConfig).items()
    if setting.name in _LIMITS + LISTENERS
}

# The cleaner is started, or not, with the broker.
_CLEANER_FIELDS: Mapping[str, str] = {
    setting.name: field
    for field, setting in declared_settings(CleanerConfig).items()
    if field != "enable"
}

CERTIFICATES_NEED_PREFIX = (
    "These security configs can be dynamically updated only per-listener using the listener prefix"
)

DYNAMIC = frozenset({*TOPIC_DEFAULTS, *_OWN_FIELDS, *_CLEANER_FIELDS})

_LOG_FIELDS = {setting.name: field for field, setting in declared_settings(LogConfig).items()}

# All other settings of brokers, to tell a static one from an unknown one.
_PARTS = (
    BrokerConfig,
    ServerTlsConfig,
    CleanerConfig,
    OffsetsConfig,
    GroupConfig,
    TransactionsConfig,
)
_READ_ONCE = {*LOG_NAMES, *(s.name for part in _PARTS for s in declared_settings(part).values())}


class NotDynamic(SettingError):
    """A setting of brokers that cannot change while they run."""


def apply_dynamic(static: BrokerConfig, dynamic: Mapping[str, str]) -> BrokerConfig:
    """Return the effective config of a broker that was started with `static`.

    Raises SettingError, NotDynamic.
    """
    config = _overlay(static, dynamic)
    _refuse_impossible(static, config)
    return config


def _refuse_impossible(static: BrokerConfig, config: BrokerConfig) -> None:
    """Raise SettingError for values that are valid one by one, and impossible together."""
    refuse_impossible(config.cleaner)
    refuse_impossible_addresses(config)
    _refuse_impossible_listeners(static, config)
    limits = config.connection_limits
    refuse_impossible_limits(limits.per_ip, limits.overrides)


def _refuse_impossible_listeners(static: BrokerConfig, config: BrokerConfig) -> None:
    """Raise SettingError for listeners that cannot be opened while the broker runs."""
    _refuse_other_protocols(static, config)
    existing = {endpoint.listener for endpoint in static.endpoints}
    for endpoint in config.endpoints:
        if endpoint.listener not in existing and is_sasl(endpoint):
            reason = (
                f"{endpoint.listener} has logins: it is opened at a start, by the broker's file"
            )
            raise SettingError("listeners", reason)


def _refuse_other_protocols(now: BrokerConfig, config: BrokerConfig) -> None:
    protocols = {endpoint.listener: endpoint.security_protocol for endpoint in now.endpoints}
    for endpoint in config.endpoints:
        name, protocol = endpoint.listener, endpoint.security_protocol
        if protocols.get(name, protocol) != protocol:
            reason = f"Security protocol cannot be updated for existing listener {name}"
            raise SettingError("listener.security.protocol.map", reason)


def refuse_other_protocols(
    now: BrokerConfig, static: BrokerConfig, dynamic: Mapping[str, str]
) -> None:
    """Raise SettingError for settings by which a listener that is open speaks another protocol."""
    listeners = {name: dynamic[name] for name in LISTENERS if name in dynamic}
    _refuse_other_protocols(now, _overlay(static, listeners))


def check_change(now: BrokerConfig, name: str, value: str) -> None:
    """Refuse an impossible change of one setting. Raises SettingError, NotDynamic.

    `refuse_contradiction` judges it beside the others.
    """
    refuse_leap(now.cleaner, _overlay(now, {name: value}).cleaner)
    if name in THREADS:
        check_threads(name, value, int(now.given.get(name, THREADS[name])))


def refuse_contradiction(static: BrokerConfig, dynamic: Mapping[str, str]) -> None:
    """Raise SettingError for settings that contradict each other, or those in `static`.

    A value that is wrong by itself is not looked at.
    """
    config = static
    for name, value in dynamic.items():
        with contextlib.suppress(SettingError):
            config = _overlay(config, {name: value})
    _refuse_impossible(static, config)


def _overlay(static: BrokerConfig, dynamic: Mapping[str, str]) -> BrokerConfig:
    """Return `static` with other values, each one valid. Raises SettingError, NotDynamic."""
    for name in dynamic:
        _refuse_static(name)

    # The defaults of topics.
    log = {TOPIC_DEFAULTS[name]: value for name, value in dynamic.items() if name in TOPIC_DEFAULTS}
    try:
        log_config = broker_config(static.log, log)
    except SettingError as error:
        # Under the name that brokers have for it.
        raise error.with_name(BROKER_NAME.get(error.name, error.name)) from error

    # The broker's own settings.
    own = {name: value for name, value in dynamic.items() if name in _OWN_FIELDS}
    # zookeeper.connect is here because a config cannot be loaded without it.
    loaded, _ = load(BrokerConfig, {"zookeeper.connect": static.zookeeper_connect, **own})
    fields = {_OWN_FIELDS[name]: getattr(loaded, _OWN_FIELDS[name]) for name in own}

    cleaner = _overlay_cleaner(static.cleaner, dynamic)

    # Those of single listeners, which are read from what was given.
    of_listeners = {name: value for name, value in dynamic.items() if is_listener_dynamic(name)}
    for name, value in of_listeners.items():
        if is_listener_limit(name):
            convert_limit(name, value, least=1)
    # Those without effect are kept to be described, and compared with the next change.
    ineffective = {k: value for k, value in dynamic.items() if k in CHANGES_WITHOUT_EFFECT}
    given = {**static.given, **of_listeners, **ineffective}
    return attrs.evolve(static, given=given, log=log_config, cleaner=cleaner, **fields)


def _overlay_cleaner(static: CleanerConfig, dynamic: Mapping[str, str]) -> CleanerConfig:
    own = {name: value for name, value in dynamic.items() if name in _CLEANER_FIELDS}
    loaded, _ = load(CleanerConfig, own)
    fields = {_CLEANER_FIELDS[name]: getattr(loaded, _CLEANER_FIELDS[name]) for name in own}
    return attrs.evolve(static, **fields)


def dynamic_value(config: BrokerConfig, name: str) -> object:
    """Return the value in `config` of a setting that can change, but for those of listeners."""
    if name in CHANGES_WITHOUT_EFFECT:
        default = INEFFECTIVE[name].default if name in INEFFECTIVE else str(THREADS[name])
        return config.given.get(name, default)
    if name in _OWN_FIELDS:
        return getattr(config, _OWN_FIELDS[name])
    if name in _CLEANER_FIELDS:
        return getattr(config.cleaner, _CLEANER_FIELDS[name])
    return getattr(config.log, _LOG_FIELDS[TOPIC_DEFAULTS[name]])


def is_dynamic(name: str) -> bool:
    """Return whether a setting of brokers can change while they run, with effect or without."""
    # AdminClient could change what it can change at stock brokers only (fault outside-O8, was: ()).
    ineffective = CHANGES_WITHOUT_EFFECT
    return name in DYNAMIC or name in ineffective or is_listener_dynamic(name)


def is_listener_dynamic(name: str) -> bool:
    """Return whether a setting of one listener can change while the broker runs."""
    listener, setting_name = split_listener_setting(name)
    return bool(listener) and setting_name in DYNAMIC_TLS_SETTINGS | LISTENER_LIMITS


def is_listener_limit(name: str) -> bool:
    """Return whether a setting limits the connections of one listener."""
    return is_listener_setting(name, LISTENER_LIMITS)


def _refuse_static(name: str) -> None:
    if is_dynamic(name):
        return

    # Say why it cannot change, as far as that is known.
    if name in DYNAMIC_TLS_SETTINGS:
        raise SettingError(name, CERTIFICATES_NEED_PREFIX)
    if name.startswith(PREFIX):
        reason = "of a listener, only stores of TLS and limits of connections can change"
        raise NotDynamic(name, reason)
    if name in ACCEPTED:
        raise NotDynamic(name, ACCEPTED[name])
    if name in REFUSED:
        raise NotDynamic(name, REFUSED[name])
    if name in _READ_ONCE:
        raise NotDynamic(name, "is read when the broker starts, and cannot change while it runs")
    raise UnknownSetting(name, "is not a setting of brokers")
