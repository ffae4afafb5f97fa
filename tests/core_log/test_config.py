"""Topic settings over the broker's."""

from __future__ import annotations

import pytest

from core_log.config import BROKER_NAME, LogConfig
from protocol.settings import SettingError, declared_settings

NAMES = {field: setting.name for field, setting in declared_settings(LogConfig).items()}
NUMBERS = [
    (name, below)
    for name, below in {
        "segment.bytes": 13,
        "segment.ms": 0,
        "retention.bytes": -2,
        "retention.ms": -2,
        "min.cleanable.dirty.ratio": -0.1,
        "min.insync.replicas": 0,
        "max.compaction.lag.ms": 0,
        **{
            NAMES[field]: -1
            for field in (
                "segment_jitter_ms",
                "segment_index_bytes",
                "index_interval_bytes",
                "flush_messages",
                "flush_ms",
                "max_message_bytes",
                "delete_retention_ms",
                "min_compaction_lag_ms",
                "file_delete_delay_ms",
                "message_timestamp_difference_max_ms",
            )
        },
    }.items()
]
"""Every setting that is a number, with the largest value that is too small for it."""


def test_overrides_replace_the_brokers_values_and_no_others() -> None:
    broker = LogConfig(segment_bytes=1000, retention_ms=5)
    config = LogConfig.from_properties(
        broker, {"retention.ms": "-1", "cleanup.policy": "compact,delete"}
    )
    assert (config.segment_bytes, config.retention_ms) == (1000, -1)
    assert config.compacts
    assert config.deletes


def test_override_equal_to_kafkas_default_still_overrides_the_broker() -> None:
    config = LogConfig.from_properties(LogConfig(segment_ms=5), {"segment.ms": "604800000"})
    assert config.segment_ms == 604_800_000


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.index_interval_bytes) == (1073741824, 4096)
    assert (config.max_message_bytes, config.cleanup_policy) == (1048588, ("delete",))


def test_no_overrides_are_the_brokers_values() -> None:
    broker = LogConfig(segment_bytes=1000, retention_ms=5)
    assert LogConfig.from_properties(broker, {}) == broker


def test_defaults_written_out_are_the_defaults() -> None:
    def written(value: object) -> str:
        return ",".join(value) if isinstance(value, tuple) else str(value).removesuffix(".0")

    overrides = {name: written(getattr(LogConfig(), field)) for field, name in NAMES.items()}
    assert LogConfig.from_properties(LogConfig(segment_ms=5), overrides) == LogConfig()


def test_every_number_is_among_those_that_are_tried() -> None:
    numbers = {NAMES[field] for field in NAMES if type(getattr(LogConfig(), field)) in (int, float)}
    assert {name for name, _ in NUMBERS} == numbers


@pytest.mark.parametrize(("name", "below"), NUMBERS)
def test_number_that_is_none_or_too_small_is_refused(name: str, below: float) -> None:
    for value in ("not_a_number", "", str(below)):
        with pytest.raises(SettingError, match=name):
            LogConfig.from_properties(LogConfig(), {name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("preallocate", "not_a_boolean"),
        ("message.downconversion.enable", "1.5"),
        ("message.format.version", "not_a_version"),
        ("message.format.version", "0.7"),
        ("message.timestamp.type", "not_a_type"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("segment.bytes", "13"),
        ("segment.bytes", "2147483648"),
        ("segment.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.bytes", "many"),
        ("cleanup.policy", "compact,remove"),
        ("compression.type", "none"),
        ("min.insync.replicas", "0"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("message.timestamp.type", "createtime"),
        ("unclean.leader.election.enable", "maybe"),
        ("index.interval.bytes", "-1"),
        ("segment.size", "1"),
        ("leader.replication.throttled.replicas", "0:1,2"),
        ("leader.replication.throttled.replicas", "0:1,*"),
        ("follower.replication.throttled.replicas", "0:1:2"),
        ("follower.replication.throttled.replicas", "-1:0"),
    ],
)
def test_value_out_of_range_and_unknown_name_are_refused(name: str, value: str) -> None:
    with pytest.raises(SettingError, match=name):
        LogConfig.from_properties(LogConfig(), {name: value})


def test_every_topic_setting_names_its_broker_setting() -> None:
    assert BROKER_NAME["segment.bytes"] == "log.segment.bytes"
    assert BROKER_NAME["retention.ms"] == "log.retention.ms"
    assert BROKER_NAME["max.message.bytes"] == "message.max.bytes"
    assert "leader.replication.throttled.replicas" not in BROKER_NAME
    assert len(BROKER_NAME) == 24


@pytest.mark.parametrize(
    ("value", "listed"),
    [("", set()), ("*", {"*"}), ("0:1", {"0:1"}), ("0:1, 10:20", {"0:1", "10:20"})],
)
def test_throttled_replicas_are_all_or_a_list(value: str, listed: set[str]) -> None:
    config = LogConfig.from_properties(
        LogConfig(),
        {f"{role}.replication.throttled.replicas": value for role in ("leader", "follower")},
    )
    assert config.leader_throttled == config.follower_throttled == frozenset(listed)
