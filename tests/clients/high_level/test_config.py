"""Settings of the high-level consumer: Kafka's names, defaults and refusals."""

import pytest

from clients.high_level.config import load_consumer_config
from protocol.settings import SettingError

LEAST = {"group.id": "g", "zookeeper.connect": "localhost:2181"}


def test_the_defaults_are_kafkas() -> None:
    config, notes = load_consumer_config(LEAST)
    assert notes == []
    assert config.zookeeper_session_timeout_ms == 6000
    assert config.auto_commit_interval_ms == 60_000
    assert config.auto_offset_reset == "largest"
    assert config.queued_max_message_chunks == 2
    assert config.membership_settings.rebalance_max_retries == 4
    assert config.membership_settings.rebalance_backoff_ms == 2000
    assert config.cluster_config.client_id == "g"
    assert not config.commits_to_both


def test_names_may_have_underscores() -> None:
    config, _ = load_consumer_config(
        {"group_id": "g", "zookeeper_connect": "z:1", "fetch_min_bytes": "7"}
    )
    assert config.fetch_min_bytes == 7


def test_the_backoff_follows_zookeepers_sync_time_unless_set() -> None:
    config, _ = load_consumer_config({**LEAST, "zookeeper.sync.time.ms": "200"})
    assert config.membership_settings.rebalance_backoff_ms == 200
    config, _ = load_consumer_config({**LEAST, "rebalance.backoff.ms": "0"})
    assert config.membership_settings.rebalance_backoff_ms == 0


def test_offsets_in_kafka_are_kept_in_zookeeper_too_unless_told_otherwise() -> None:
    config, _ = load_consumer_config({**LEAST, "offsets.storage": "KAFKA"})
    assert config.commits_to_both
    config, _ = load_consumer_config(
        {**LEAST, "offsets.storage": "kafka", "dual.commit.enabled": "false"}
    )
    assert not config.commits_to_both


@pytest.mark.parametrize(("newer", "older"), [("earliest", "smallest"), ("latest", "largest")])
def test_the_newer_names_of_resets_are_understood(newer: str, older: str) -> None:
    config, _ = load_consumer_config({**LEAST, "auto.offset.reset": newer})
    assert config.auto_offset_reset == older


def test_a_setting_without_effect_is_noted() -> None:
    _, notes = load_consumer_config({**LEAST, "num.consumer.fetchers": "2"})
    assert len(notes) == 1
    assert notes[0].startswith("num.consumer.fetchers=2")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.id", "no/slash"),
        ("client.id", "no space"),
        ("auto.offset.reset", "middle"),
        ("offsets.storage", "disk"),
        ("partition.assignment.strategy", "sticky"),
        ("rebalance.max.retries", "0"),
        ("socket.timeout.ms", "50"),
        ("membership", "raft"),
        ("no.such.setting", "1"),
    ],
)
def test_what_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingError) as refusal:
        load_consumer_config({**LEAST, name: value})
    assert refusal.value.name == name


@pytest.mark.parametrize("missing", sorted(LEAST))
def test_what_is_required_is_required(missing: str) -> None:
    with pytest.raises(SettingError) as refusal:
        load_consumer_config({name: value for name, value in LEAST.items() if name != missing})
    assert refusal.value.name == missing
