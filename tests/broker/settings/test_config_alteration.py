"""Changes of settings: the settings that follow, and the changes that are refused."""

from __future__ import annotations

from functools import partial

import pytest

from broker.settings.config import load_broker_config
from broker.settings.config_alteration import (
    AlterOperation,
    Change,
    Schema,
    apply_changes,
    broker_schema,
    topic_schema,
)
from broker.settings.dynamic_config import refuse_contradiction
from core_log.config import LogConfig
from protocol.errors import ApiError, ErrorCode

SET, DELETE, APPEND, SUBTRACT = AlterOperation
TOPIC = topic_schema(LogConfig(), "t")
CONFIG, _ = load_broker_config({"zookeeper.connect": "zk:1"})
BROKER = broker_schema(CONFIG, "1", partial(refuse_contradiction, CONFIG))
THREADS, BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
POLICY = "cleanup.policy"


def change(name: str, operation: int, value: str | None, **before: str) -> dict[str, str]:
    """Return the settings of a topic after one change."""
    current = {key.replace("_", "."): text for key, text in before.items()}
    return dict(apply_changes(TOPIC, [Change(name, value, operation)], current, replaces=False))


def refusal_of(schema: Schema, *changes: Change) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        apply_changes(schema, changes, {}, replaces=False)
    return raised.value.code


def test_what_is_set_comes_to_the_others() -> None:
    after = change("retention.ms", SET, "7", retention_ms="5", segment_ms="6")
    assert after == {"retention.ms": "7", "segment.ms": "6"}


@pytest.mark.fault("outside-O2", needs_no_remedy="the check that refused them is not made")
def test_last_value_of_a_setting_that_comes_twice_counts() -> None:
    """As librdkafka's test 0092 changes one: all settings as they are, then that one again."""
    sent = [("segment.ms", "5"), ("retention.ms", "6"), ("segment.ms", "7")]
    changes = [Change(name, value) for name, value in sent]
    assert apply_changes(TOPIC, changes, {}, replaces=True) == {
        "segment.ms": "7",
        "retention.ms": "6",
    }
    with pytest.raises(ApiError, match=r"duplicate config keys : segment\.ms"):
        apply_changes(TOPIC, changes, {}, replaces=False)


def test_all_at_once_leave_nothing_else() -> None:
    changes = [Change("retention.ms", "7")]
    assert apply_changes(TOPIC, changes, {"segment.ms": "6"}, replaces=True) == {
        "retention.ms": "7"
    }


def test_what_is_deleted_goes_whether_it_is_understood_or_not() -> None:
    assert change("retention.ms", DELETE, None, retention_ms="5") == {}
    assert change("of.the.future", DELETE, None, of_the_future="5") == {}
    assert change("retention.ms", DELETE, "ignored") == {}


def test_what_is_there_and_not_understood_stays() -> None:
    after = change("retention.ms", SET, "7", of_the_future="5")
    assert after == {"retention.ms": "7", "of.the.future": "5"}


@pytest.mark.parametrize(
    ("operation", "value", "before", "after"),
    [
        (APPEND, "compact", None, "delete,compact"),  # to what it is without
        (APPEND, "compact,delete", "compact", "compact,delete"),
        (APPEND, "compact", "", "compact"),
        (SUBTRACT, "delete", "compact,delete", "compact"),
        (SUBTRACT, "compact", None, "delete"),
        (SUBTRACT, "delete", None, ""),
    ],
)
def test_a_list_gets_more_words_or_fewer(
    operation: int, value: str, before: str | None, after: str
) -> None:
    current = {} if before is None else {POLICY: before}
    settings = apply_changes(TOPIC, [Change(POLICY, value, operation)], current, replaces=False)
    assert settings == {POLICY: after}


def test_a_list_does_not_grow_beyond_what_can_be_described() -> None:
    name = "leader.replication.throttled.replicas"
    half = ",".join(f"{partition}:1" for partition in range(2_500))
    other = ",".join(f"{partition}:2" for partition in range(2_500))
    assert apply_changes(TOPIC, [Change(name, half, APPEND)], {}, replaces=False) == {name: half}
    with pytest.raises(ApiError, match="would have 32779 bytes"):
        apply_changes(TOPIC, [Change(name, other, APPEND)], {name: half}, replaces=False)


def test_a_list_of_the_broker_begins_with_what_is_in_force() -> None:
    settings = apply_changes(
        topic_schema(LogConfig(cleanup_policy=("compact",)), "t"),
        [Change(POLICY, "delete", APPEND)],
        {},
        replaces=False,
    )
    assert settings == {POLICY: "compact,delete"}


@pytest.mark.parametrize(
    ("altered", "code"),
    [
        (Change("retention.millis", "1"), ErrorCode.INVALID_CONFIG),
        (Change("retention_ms", "1"), ErrorCode.INVALID_CONFIG),
        (Change("retention.millis", "1", APPEND), ErrorCode.INVALID_CONFIG),
        (Change("retention.ms", "long"), ErrorCode.INVALID_REQUEST),
        (Change("retention.ms", "-2"), ErrorCode.INVALID_REQUEST),
        (Change("retention.ms", None), ErrorCode.INVALID_REQUEST),
        (Change("retention.ms", "1", APPEND), ErrorCode.INVALID_REQUEST),
        (Change("retention.ms", "1", 4), ErrorCode.INVALID_REQUEST),
        (Change(POLICY, "compress", APPEND), ErrorCode.INVALID_REQUEST),
        (Change("leader.replication.throttled.replicas", "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_is_refused(altered: Change, code: ErrorCode) -> None:
    assert refusal_of(TOPIC, altered) == code


def test_a_setting_named_twice_is_refused() -> None:
    twice = [Change(POLICY, "compact", APPEND), Change(POLICY, "delete", SUBTRACT)]
    assert refusal_of(TOPIC, *twice) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("altered", "code"),
    [
        (Change("retention.ms", "1"), ErrorCode.INVALID_CONFIG),  # is a topic's
        (Change("num.partitions", "1"), ErrorCode.INVALID_REQUEST),  # cannot change
        (Change("log.retention.ms", "x"), ErrorCode.INVALID_REQUEST),
        (Change("log.retention.ms", "1", SUBTRACT), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_broker_has_settings_of_its_own(altered: Change, code: ErrorCode) -> None:
    assert refusal_of(BROKER, altered) == code


def test_a_list_of_brokers_can_grow_too() -> None:
    settings = apply_changes(
        BROKER, [Change("log.cleanup.policy", "compact", APPEND)], {}, replaces=False
    )
    assert settings == {"log.cleanup.policy": "delete,compact"}


def test_changes_that_only_together_are_impossible_are_refused() -> None:
    changes = [Change(THREADS, "2"), Change(BUFFER, str(2**21))]
    assert refusal_of(BROKER, *changes) == ErrorCode.INVALID_REQUEST


def test_changes_that_only_together_are_possible_are_made() -> None:
    config, _ = load_broker_config({"zookeeper.connect": "zk:1", BUFFER: str(2**21)})
    schema = broker_schema(config, "1", partial(refuse_contradiction, config))
    assert refusal_of(schema, Change(THREADS, "2")) == ErrorCode.INVALID_REQUEST
    both = {THREADS: "2", BUFFER: str(2**22)}
    changes = [Change(name, value) for name, value in both.items()]
    assert apply_changes(schema, changes, {}, replaces=False) == both


def test_deletion_of_what_another_setting_needs_is_refused() -> None:
    current = {THREADS: "200", BUFFER: str(2**30)}
    with pytest.raises(ApiError, match="1 MiB") as raised:
        apply_changes(BROKER, [Change(BUFFER, None, DELETE)], current, replaces=False)
    assert raised.value.code == ErrorCode.INVALID_REQUEST
