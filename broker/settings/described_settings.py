"""Describe settings: all values that one has, where each comes from, its type and its meaning.

The first value that exists is effective: the topic's own, the broker's own, the one for all brokers
(both in ZooKeeper, KIP-226), the properties file's, the default.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from broker.settings.accepted_settings import ACCEPTED
from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import DYNAMIC, is_dynamic
from broker.settings.listener_settings import PREFIX, split_listener_setting
from compaction.config import CleanerConfig
from core_log.config import BROKER_NAME, LogConfig
from groups.coordinator.config import GroupConfig
from groups.transactions.config import TransactionsConfig
from offsets.config import OffsetsConfig
from protocol.frozen import frozen
from protocol.settings import declared_settings, is_secret, type_name
from protocol.tls.config import ServerTlsConfig

# The protocol's numbers of sources.
FROM_TOPIC = 1
FROM_BROKER = 2
FROM_ALL_BROKERS = 3
FROM_STATIC_BROKER = 4
FROM_DEFAULT = 5

UNKNOWN_TYPE = "UNKNOWN"
PASSWORD = "PASSWORD"
TYPE_NUMBERS: Mapping[str, int] = {
    UNKNOWN_TYPE: 0,
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    PASSWORD: 9,
}
"""The protocol's numbers of types (KIP-569)."""

Value = tuple[str, str | None, int]
"""The name under which a setting has a value, the value, and its source."""


@frozen
class DescribedSetting:
    """A setting with all its values, the effective one first.

    A sensitive one shows that it is set, and where, but no value. `type` is Kafka's name of it.
    """

    name: str
    values: list[Value]
    type: str = UNKNOWN_TYPE
    documentation: str | None = None
    read_only: bool = False
    is_sensitive: bool = False


_PARTS = (
    BrokerConfig,
    ServerTlsConfig,
    CleanerConfig,
    OffsetsConfig,
    GroupConfig,
    TransactionsConfig,
)

# Kafka splits the text of these itself.
_LISTS_IN_STRINGS = frozenset({"log.dirs", "max.connections.per.ip.overrides"})


def _find_meanings() -> Mapping[str, tuple[str, str | None]]:
    """Return type and documentation of each setting of brokers that is declared, by its name."""
    meanings = {}
    for part in (*_PARTS, LogConfig):
        for field, setting in declared_settings(part).items():
            name = BROKER_NAME.get(setting.name, "") if part is LogConfig else setting.name
            kind = "STRING" if name in _LISTS_IN_STRINGS else type_name(part, field)
            meanings[name] = kind, setting.doc or None
    return meanings


_MEANINGS = _find_meanings()


def describe_topic(brokers: BrokerConfigs, own: Mapping[str, str]) -> list[DescribedSetting]:
    """Describe the settings of a topic that has those of `own` itself."""
    static = brokers.static.log
    defaults = LogConfig()
    described = []

    for field, setting in sorted(
        declared_settings(LogConfig).items(), key=lambda item: item[1].name
    ):
        # From the most specific value to the default.
        broker_name = BROKER_NAME.get(setting.name, setting.name)
        values: list[Value] = []
        if setting.name in own:
            values.append((setting.name, own[setting.name], FROM_TOPIC))
        values += _dynamic_values(brokers, broker_name)
        # The file counts as a source where it differs from the default.
        if getattr(static, field) != getattr(defaults, field):
            values.append((broker_name, text(getattr(static, field)), FROM_STATIC_BROKER))
        values.append((broker_name, text(getattr(defaults, field)), FROM_DEFAULT))
        kind = type_name(LogConfig, field)
        described.append(DescribedSetting(setting.name, values, kind, setting.doc or None))
    return described


def describe_all_brokers(brokers: BrokerConfigs) -> list[DescribedSetting]:
    """Describe the settings that all brokers have in common, in ZooKeeper."""
    return [
        _describe(name, [(name, value, FROM_ALL_BROKERS)], read_only=False)
        for name, value in sorted(brokers.cluster.items())
    ]


def describe_broker(brokers: BrokerConfigs) -> list[DescribedSetting]:
    """Describe the settings of this broker."""
    static = brokers.static

    # The broker's own settings, then those of logs that brokers have under another name.
    described = [
        _describe_field(brokers, setting.name, part, field)
        for part in (static, static.tls, static.cleaner, static.offsets, static.groups)
        for field, setting in declared_settings(type(part)).items()
    ]
    described += [
        _describe_field(brokers, BROKER_NAME[setting.name], static.log, field)
        for field, setting in declared_settings(LogConfig).items()
        if setting.name in BROKER_NAME
    ]

    # Settings of Kafka that are accepted and do nothing here, as the file has them.
    described += [
        _describe(name, [(name, value, FROM_STATIC_BROKER)], read_only=True)
        for name, value in static.given.items()
        if name in ACCEPTED
    ]

    # Those of single listeners: of the file, and of ZooKeeper alone.
    given_names = (*static.given, *brokers.own, *brokers.cluster)
    names = {name for name in given_names if name.startswith(PREFIX)}
    described += [_describe_listener_setting(brokers, name) for name in names]
    return sorted(described, key=lambda setting: setting.name)


def _describe_field(
    brokers: BrokerConfigs, name: str, part: attrs.AttrsInstance, field: str
) -> DescribedSetting:
    """Describe a setting of the broker whose static value is `field` of `part`."""
    value = getattr(part, field)
    default = attrs.fields_dict(type(part))[field].default
    values = _dynamic_values(brokers, name)
    # A value that the file names counts even if it is the default.
    if name in brokers.static.given or value != default:
        values.append((name, text(value), FROM_STATIC_BROKER))
    if default is not attrs.NOTHING:
        values.append((name, text(default), FROM_DEFAULT))
    return _describe(name, values, read_only=name not in DYNAMIC)


def _describe_listener_setting(brokers: BrokerConfigs, name: str) -> DescribedSetting:
    values = _dynamic_values(brokers, name)
    if name in brokers.static.given:
        values.append((name, brokers.static.given[name], FROM_STATIC_BROKER))
    return _describe(name, values, read_only=not is_dynamic(name))


def _describe(name: str, values: list[Value], *, read_only: bool) -> DescribedSetting:
    """Describe a setting of brokers by its values."""
    if is_secret(name):
        hidden: list[Value] = [(named, None, source) for named, _, source in values]
        return DescribedSetting(name, hidden, PASSWORD, None, read_only, is_sensitive=True)
    _, general_name = split_listener_setting(name)
    kind, documentation = _MEANINGS.get(general_name, (UNKNOWN_TYPE, None))
    return DescribedSetting(name, values, kind, documentation, read_only)


def _dynamic_values(brokers: BrokerConfigs, name: str) -> list[Value]:
    # In order of precedence.
    layers = ((brokers.own, FROM_BROKER), (brokers.cluster, FROM_ALL_BROKERS))
    return [(name, layer[name], source) for layer, source in layers if name in layer]


def text(value: object) -> str | None:
    """Write a setting's value as Kafka does; null if it has none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
