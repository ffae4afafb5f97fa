"""Changes of settings that clients ask for: what they come to, and what is refused.

AlterConfigs names all settings an entity is to have, IncrementalAlterConfigs what is to change in
them (KIP-339). What is set must be understood; what is there already stays, understood or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial

import attrs

from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import DYNAMIC, NotDynamic, check_change, dynamic_value
from broker.settings.entity_configs import Settings
from core_log.config import UNKNOWN_TOPIC_CONFIG, LogConfig, contradiction
from protocol.errors import ApiError, ErrorCode
from protocol.settings import SettingError, UnknownSetting, declared_settings


class Operation(IntEnum):
    """What is done to a setting (AlterConfigOp)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@attrs.frozen
class Change:
    """One setting of a request; `operation` is one of Operation, or a number that is none."""

    name: str
    value: str | None
    operation: int = Operation.SET


@attrs.frozen
class Schema:
    """The settings of an entity: what each is where it has none of its own.

    `check(name, value)` raises UnknownSetting, NotDynamic for what nobody can change so, and
    SettingError. `resource` and `unknown` are Kafka's words for the entity, and for a name that is
    no setting; `contradiction` says why settings cannot be together.
    """

    defaults: Mapping[str, object]
    check: Callable[[str, str], object]
    resource: str
    unknown: str
    contradiction: Callable[[Settings], str | None]


def topic_schema(defaults: LogConfig, topic: str) -> Schema:
    """The settings of a topic on a broker that has these of its own."""
    known = {
        setting.name: getattr(defaults, f) for f, setting in declared_settings(LogConfig).items()
    }

    def check(name: str, value: str) -> None:
        if name not in known:  # in this very spelling: others read it too
            raise UnknownSetting(name, "is not a setting of topics")
        LogConfig.from_properties(defaults, {name: value})

    return Schema(known, check, _resource("TOPIC", topic), UNKNOWN_TOPIC_CONFIG, contradiction)


def broker_schema(config: BrokerConfig, broker: str) -> Schema:
    """The settings of brokers that can change; those of this one are `config`."""
    return Schema(
        {name: dynamic_value(config, name) for name in DYNAMIC},
        partial(check_change, config),
        _resource("BROKER", broker),
        "Unknown Dynamic Configuration: ",
        lambda settings: None,
    )


def _resource(kind: str, name: str) -> str:
    """As Kafka's ConfigResource.toString has it."""
    return f"ConfigResource(type={kind}, name='{name}')"


def altered(
    schema: Schema, changes: Sequence[Change], current: Settings, *, replaces: bool
) -> Settings:
    """The entity's settings after the changes; with `replaces` nothing else is left of them.

    Raises ApiError: INVALID_CONFIG for a name that is no setting, INVALID_REQUEST for anything
    else that cannot be.
    """
    times = Counter(change.name for change in changes)
    if twice := [name for name, count in times.items() if count > 1]:
        keys = ",".join(twice)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {keys}")
    unset = [
        change.name if replaces else f"{_operation(change)}:{change.name}"
        for change in changes
        if change.value is None and change.operation != Operation.DELETE
    ]
    if unset:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(unset)}"
        )
    after = {} if replaces else dict(current)
    for change in changes:
        value = _value(schema, change, current)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
    if fault := schema.contradiction(after):
        raise ApiError(ErrorCode.INVALID_CONFIG, fault)
    return after


def _value(schema: Schema, change: Change, current: Settings) -> str | None:
    """What the setting becomes; None: it goes back to its default."""
    if change.operation == Operation.DELETE:
        return None
    assert change.value is not None
    value = change.value
    if change.operation != Operation.SET:
        value = _combined(schema, change, value, current.get(change.name))
    try:
        schema.check(change.name, value)
    except UnknownSetting as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, schema.unknown + change.name) from error
    except SettingError as error:
        is_static = isinstance(error, NotDynamic)
        why = f"Cannot update these configs dynamically: Set({change.name})"
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Invalid config value for resource {schema.resource}: {why if is_static else error}",
        ) from error
    return value


def _operation(change: Change) -> str:
    known = change.operation in tuple(Operation)
    return Operation(change.operation).name if known else str(change.operation)


def _combined(schema: Schema, change: Change, value: str, before: str | None) -> str:
    """A list with more words, or with fewer."""
    if change.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{change.name}: {change.operation} is no operation"
        )
    default = schema.defaults.get(change.name, ())
    if not isinstance(default, tuple):
        verb = Operation(change.operation).name.lower()
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Config value {verb} is not allowed for config key: {change.name}",
        )
    words, given = default if before is None else _words(before), _words(value)
    if change.operation == Operation.SUBTRACT:
        return ",".join(word for word in words if word not in given)
    return ",".join(dict.fromkeys((*words, *given)))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
