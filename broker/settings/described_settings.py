"""Describe settings: all values that one has, where each comes from, its type and its meaning.

The first value that exists is effective: the topic's own, the broker's own, the one for all brokers
(both in ZooKeeper, KIP-226), the properties file's, the default. All that Kafka describes is here,
also what has no effect on this broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import dropwhile

import attrs

from broker.settings.broker_configs import BrokerConfigs
from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import is_dynamic
from broker.settings.ineffective_settings import INEFFECTIVE
from broker.settings.listener_settings import PREFIX, split_listener_setting
from broker.settings.tls_settings import DYNAMIC_TLS_SETTINGS
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
    "CLASS": 8,
    PASSWORD: 9,
}
"""The protocol's numbers of types (KIP-569)."""

Value = tuple[str, str | None, int]
"""The name under which a setting has a value, the value, and its source."""

Layers = Sequence[tuple[Mapping[str, str | None], int]]
"""Values of settings of a broker by name, with their source; the first layer counts most."""


@frozen
class DescribedSetting:
    """A setting with its effective value, and all values that are set for it, that one first.

    `value` is None where there is none, and of a sensitive setting, which shows only that it is
    set, and where. `type` is Kafka's name of it.
    """

    name: str
    value: str | None
    values: list[Value]
    type: str = UNKNOWN_TYPE
    documentation: str | None = None
    read_only: bool = False
    is_sensitive: bool = False

    @property
    def source(self) -> int:
        """Where the effective value comes from."""
        return self.values[0][2] if self.values else FROM_DEFAULT


_PARTS = (
    BrokerConfig,
    ServerTlsConfig,
    CleanerConfig,
    OffsetsConfig,
    GroupConfig,
    TransactionsConfig,
    LogConfig,
)

# Kafka splits the text of these itself, loads a class, or counts in 64 bits.
_TYPES = {
    "log.dirs": "STRING",
    "max.connections.per.ip.overrides": "STRING",
    "sasl.server.callback.handler.class": "CLASS",
    "ssl.engine.factory.class": "CLASS",
    "connections.max.reauth.ms": "LONG",
}

_IN_OTHER_UNITS: Mapping[str, str | None] = {
    "log.retention.minutes": None,
    "log.retention.hours": "168",
    "log.roll.hours": "168",
    "log.roll.jitter.hours": "0",
}
"""The settings in minutes and hours, with their defaults."""

_WITHOUT_DEFAULT = frozenset(
    {
        # Those in other units have one.
        "log.retention.ms",
        "log.roll.ms",
        "log.roll.jitter.ms",
        "log.flush.interval.ms",
        # Java's, or ZooKeeper's, counts.
        "password.encoder.keyfactory.algorithm",
        "zookeeper.ssl.cipher.suites",
        "zookeeper.ssl.enabled.protocols",
    }
)
"""Settings whose default is null in Kafka, though something counts."""

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    name: names
    for names in (
        ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ("log.roll.ms", "log.roll.hours"),
        ("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    )
    for name in names
}
"""Names for the same: of several that are set the first counts."""


def _name_of(part: type, name: str) -> str | None:
    """Return the name that brokers have for a setting of one of the parts; None: they have none."""
    return BROKER_NAME.get(name) if part is LogConfig else name


def _find_meanings() -> Mapping[str, tuple[str, str | None]]:
    """Return type and documentation of each setting of brokers, by its name."""
    meanings: dict[str, tuple[str, str | None]] = {
        name: (setting.type, None) for name, setting in INEFFECTIVE.items()
    }
    meanings |= dict.fromkeys(_IN_OTHER_UNITS, ("INT", None))
    for part in _PARTS:
        for field, setting in declared_settings(part).items():
            if name := _name_of(part, setting.name):
                kind = _TYPES.get(name) or type_name(part, field)
                meanings[name] = kind, setting.doc or None
    return meanings


def _find_defaults() -> Mapping[str, str | None]:
    """Return the default of each setting of brokers, by its name; None: there is none."""
    defaults = dict.fromkeys(_MEANINGS)
    for part in _PARTS:
        for field, setting in declared_settings(part).items():
            default = attrs.fields_dict(part)[field].default
            if (name := _name_of(part, setting.name)) and default is not attrs.NOTHING:
                defaults[name] = text(default)
    defaults |= dict.fromkeys(_WITHOUT_DEFAULT)
    defaults |= _IN_OTHER_UNITS
    return defaults | {name: setting.default for name, setting in INEFFECTIVE.items()}


def _read_given(static: BrokerConfig) -> dict[str, str | None]:
    """Return what the file says of the settings of brokers, by name."""
    parts = (
        static,
        static.tls,
        static.cleaner,
        static.offsets,
        static.groups,
        static.transactions,
        static.log,
    )
    given: dict[str, str | None] = {
        name: value
        for name, value in static.given.items()
        if name in INEFFECTIVE or name in _IN_OTHER_UNITS or name.startswith(PREFIX)
    }
    for part in parts:
        for field, setting in declared_settings(type(part)).items():
            name = _name_of(type(part), setting.name)
            if name is None:
                continue
            value = getattr(part, field)
            is_default = value == attrs.fields_dict(type(part))[field].default
            # A value that the file names counts even if it is the default.
            has_other_name = any(other in static.given for other in _OTHER_NAMES.get(name, ()))
            if name in static.given or not (is_default or has_other_name):
                given[name] = text(value)
    return given


def _layers_of(brokers: BrokerConfigs) -> Layers:
    return (
        (brokers.own, FROM_BROKER),
        (brokers.cluster, FROM_ALL_BROKERS),
        (_read_given(brokers.static), FROM_STATIC_BROKER),
        (_DEFAULTS, FROM_DEFAULT),
    )


def _values_of(layers: Layers, name: str) -> list[Value]:
    """Return the values of a setting of brokers, and those of its other names behind its own."""
    listener, general_name = split_listener_setting(name)
    names = (name, general_name) if listener else _OTHER_NAMES.get(name, (name,))
    values = [
        (other, value, source)
        for layer, source in layers
        for other in names
        if (value := layer.get(other)) is not None
    ]
    return list(dropwhile(lambda value: value[0] != name, values))


def describe_topic(brokers: BrokerConfigs, own: Mapping[str, str]) -> list[DescribedSetting]:
    """Describe the settings of a topic that has those of `own` itself."""
    layers = _layers_of(brokers)
    described = []

    for field, setting in sorted(
        declared_settings(LogConfig).items(), key=lambda item: item[1].name
    ):
        # From the most specific value to the default.
        values: list[Value] = []
        if setting.name in own:
            values.append((setting.name, own[setting.name], FROM_TOPIC))
        if broker_name := BROKER_NAME.get(setting.name):
            values += _values_of(layers, broker_name)

        # Where the broker has none under that name, something counts all the same.
        value = values[0][1] if values else text(getattr(brokers.now.log, field))
        kind = type_name(LogConfig, field)
        described.append(DescribedSetting(setting.name, value, values, kind, setting.doc or None))
    return described


def describe_all_brokers(brokers: BrokerConfigs) -> list[DescribedSetting]:
    """Describe the settings that all brokers have in common, in ZooKeeper."""
    return [
        _describe(name, [(name, value, FROM_ALL_BROKERS)])
        for name, value in sorted(brokers.cluster.items())
    ]


def describe_broker(brokers: BrokerConfigs) -> list[DescribedSetting]:
    """Describe the settings of this broker."""
    layers = _layers_of(brokers)
    # Those of single listeners are in the file, or in ZooKeeper alone.
    of_listeners = {name for layer, _ in layers for name in layer if name.startswith(PREFIX)}
    # Tools look for some of those without effect (fault outside-O14, was: ()).
    names = _DEFAULTS.keys() | of_listeners
    return [_describe(name, _values_of(layers, name)) for name in sorted(names)]


def _describe(name: str, values: list[Value]) -> DescribedSetting:
    """Describe a setting of brokers by its values."""
    # Stores of TLS change, by the names with the prefix of a listener.
    read_only = not is_dynamic(name) and name not in DYNAMIC_TLS_SETTINGS
    if is_secret(name):
        hidden: list[Value] = [(named, None, source) for named, _, source in values]
        return DescribedSetting(name, None, hidden, PASSWORD, None, read_only, is_sensitive=True)

    _, general_name = split_listener_setting(name)
    kind, documentation = _MEANINGS.get(general_name, (UNKNOWN_TYPE, None))
    value = values[0][1] if values else None
    return DescribedSetting(name, value, values, kind, documentation, read_only)


def text(value: object) -> str | None:
    """Write a setting's value as Kafka does; null if it has none."""
    if value is None:
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return _text_of_double(value)
    return str(value)


def _text_of_double(value: float) -> str:
    """Write a number as Java does: "0.5", "1.7976931348623157E308"."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    mantissa, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
    if "." not in mantissa:
        mantissa += ".0"
    return f"{mantissa}E{int(exponent)}"


_MEANINGS = _find_meanings()
_DEFAULTS = _find_defaults()
