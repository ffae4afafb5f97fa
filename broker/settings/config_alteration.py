"""Apply the changes of settings that clients ask for, or refuse them.

AlterConfigs names all settings that an entity is to have. IncrementalAlterConfigs names changes to
them (KIP-339). A setting that is set must be valid; one that is stored already stays, valid or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial

from broker.settings.config import BrokerConfig
from broker.settings.dynamic_config import DYNAMIC, NotDynamic, check_change, dynamic_value
from broker.settings.entity_configs import Settings
from broker.settings.ineffective_settings import CHANGES_WITHOUT_EFFECT
from core_log.config import UNKNOWN_TOPIC_CONFIG, LogConfig, contradiction
from protocol.bounds import MAX_STRING_BYTES
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.settings import SettingError, UnknownSetting, declared_settings


class AlterOperation(IntEnum):
    """The ways to change a setting (AlterConfigOp)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@frozen
class Change:
    """A setting in a request. `operation` is an AlterOperation, or a number that is none."""

    name: str
    value: str | None
    operation: int = AlterOperation.SET


@frozen
class Schema:
    """The settings of an entity, with their default values.

    `check(name, value)` raises UnknownSetting, NotDynamic for a setting that nobody can change this
    way, and SettingError. `resource` and `unknown` are Kafka's words for the entity, and for an
    unknown setting. `refuse_contradiction(settings)` raises ApiError, or SettingError, for settings
    that cannot stand together.
    """

    defaults: Mapping[str, object]
    check: Callable[[str, str], object]
    resource: str
    unknown: str
    refuse_contradiction: Callable[[Settings], None]


def topic_schema(defaults: LogConfig, topic: str) -> Schema:
    """Return the settings of a topic on a broker with these defaults."""
    known = {
        setting.name: getattr(defaults, field)
        for field, setting in declared_settings(LogConfig).items()
    }

    def check(name: str, value: str) -> None:
        # Only the exact spelling counts: other brokers read the name too.
        if name not in known:
            raise UnknownSetting(name, "is not a setting of topics")
        LogConfig.from_properties(defaults, {name: value})

    def refuse_contradiction(settings: Settings) -> None:
        if reason := contradiction(settings):
            raise ApiError(ErrorCode.INVALID_CONFIG, reason)

    return Schema(
        known, check, _resource("TOPIC", topic), UNKNOWN_TOPIC_CONFIG, refuse_contradiction
    )


def broker_schema(
    config: BrokerConfig, broker: str, refuse_contradiction: Callable[[Settings], None]
) -> Schema:
    """Return the dynamic settings of brokers; `config` has this broker's values."""
    return Schema(
        {name: dynamic_value(config, name) for name in DYNAMIC | CHANGES_WITHOUT_EFFECT},
        partial(check_change, config),
        _resource("BROKER", broker),
        "Unknown Dynamic Configuration: ",
        refuse_contradiction,
    )


def _resource(kind: str, name: str) -> str:
    """Render a resource as Kafka's ConfigResource.toString does."""
    return f"ConfigResource(type={kind}, name='{name}')"


def apply_changes(
    schema: Schema, changes: Sequence[Change], current: Settings, *, replaces: bool
) -> Settings:
    """Return the entity's settings after the changes.

    With `replaces`, settings that the changes do not name are deleted, and the last value of one
    that comes twice counts. Raises ApiError: INVALID_CONFIG for an unknown setting, INVALID_REQUEST
    for any other impossible change.
    """
    # Clients of AlterConfigs send all that they have read, and behind it what they change.
    if not replaces:
        _refuse_duplicates(changes)
    _refuse_null_values(changes, replaces=replaces)

    settings = {} if replaces else dict(current)
    for change in changes:
        value = _value_after(schema, change, current)
        if value is None:
            settings.pop(change.name, None)
        else:
            settings[change.name] = value

    # Judge the result as a whole: a pair may come from two changes.
    try:
        schema.refuse_contradiction(settings)
    except SettingError as error:
        raise invalid_value(schema, str(error)) from error
    return settings


def _refuse_duplicates(changes: Sequence[Change]) -> None:
    # Two changes of one setting: the order in a request means nothing.
    counts = Counter(change.name for change in changes)
    if duplicates := [name for name, count in counts.items() if count > 1]:
        keys = ",".join(duplicates)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys : {keys}")


def _refuse_null_values(changes: Sequence[Change], *, replaces: bool) -> None:
    # Kafka shows the operation where the request has one.
    nulls = [
        change.name if replaces else f"{_operation(change)}:{change.name}"
        for change in changes
        if change.value is None and change.operation != AlterOperation.DELETE
    ]
    if nulls:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}"
        )


def _value_after(schema: Schema, change: Change, current: Settings) -> str | None:
    """Return the setting's new value; None: it goes back to its default."""
    if change.operation == AlterOperation.DELETE:
        return None

    assert change.value is not None
    value = change.value
    if change.operation != AlterOperation.SET:
        value = _edit_list(schema, change, value, current.get(change.name))

    # Check the value that will be stored, words that stay included.
    try:
        schema.check(change.name, value)
    except UnknownSetting as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, schema.unknown + change.name) from error
    except SettingError as error:
        reason = str(error)
        if isinstance(error, NotDynamic):
            reason = f"Cannot update these configs dynamically: Set({change.name})"
        raise invalid_value(schema, reason) from error
    return value


def invalid_value(schema: Schema, reason: str) -> ApiError:
    """Return the error for a value that an entity cannot have."""
    return ApiError(
        ErrorCode.INVALID_REQUEST, f"Invalid config value for resource {schema.resource}: {reason}"
    )


def _operation(change: Change) -> str:
    is_known = change.operation in tuple(AlterOperation)
    return AlterOperation(change.operation).name if is_known else str(change.operation)


def _edit_list(schema: Schema, change: Change, value: str, before: str | None) -> str:
    """Append words to a list, or subtract them from it."""
    if change.operation not in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{change.name}: {change.operation} is no operation"
        )

    # Only a setting whose default is a list has words.
    default = schema.defaults.get(change.name, ())
    if not isinstance(default, tuple):
        verb = AlterOperation(change.operation).name.lower()
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Config value {verb} is not allowed for config key: {change.name}",
        )

    # A list that is not set yet begins with its default.
    words = default if before is None else _words(before)
    changed_words = _words(value)
    if change.operation == AlterOperation.SUBTRACT:
        return ",".join(word for word in words if word not in changed_words)

    # A word that is there already is not added again.
    longer = ",".join(dict.fromkeys((*words, *changed_words)))
    size = len(longer.encode())
    if size > MAX_STRING_BYTES:
        # Nobody could describe the topic any more.
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{change.name} would have {size} bytes, a response has room for {MAX_STRING_BYTES}",
        )
    return longer


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
