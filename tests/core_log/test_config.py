"""Topic settings over the broker's."""

from __future__ import annotations

import pytest

from core_log.config import BROKER_NAME, LogConfig
from protocol.settings import SettingError


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
    assert (config.max_message_bytes, config.cleanup_policy) == (1000012, ("delete",))


@pytest.mark.parametrize(
    ("name", "value"),
    [
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
