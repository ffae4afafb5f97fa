"""Settings of the high-level consumer: Kafka's names, defaults and refusals."""

import pytest

from clients.high_level.config import load_consumer_config
from protocol.settings import SettingError

LEAST = {"group.id": "g", "zookeeper.connect": "localhost:2181"}
KAFKAS_NAMES = """
    group.id zookeeper.connect consumer.id client.id zookeeper.session.timeout.ms
    zookeeper.connection.timeout.ms zookeeper.sync.time.ms rebalance.max.retries
    rebalance.backoff.ms refresh.leader.backoff.ms socket.timeout.ms
    socket.receive.buffer.bytes fetch.message.max.bytes fetch.max.bytes fetch.min.bytes
    fetch.wait.max.ms num.consumer.fetchers queued.max.message.chunks auto.commit.enable
    auto.commit.interval.ms auto.offset.reset consumer.timeout.ms offsets.storage
    dual.commit.enabled offsets.channel.backoff.ms offsets.channel.socket.timeout.ms
    offsets.commit.max.retries exclude.internal.topics partition.assignment.strategy
"""


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


def test_every_setting_of_kafkas_old_consumer_is_honoured() -> None:
    values = dict.fromkeys(KAFKAS_NAMES.split(), "70000") | LEAST
    values |= dict.fromkeys(["auto.commit.enable", "dual.commit.enabled"], "true")
    values |= {"exclude.internal.topics": "false", "auto.offset.reset": "none"}
    values |= {"offsets.storage": "kafka", "partition.assignment.strategy": "clustered"}
    config, notes = load_consumer_config(values)
    assert notes == []
    assert config.num_consumer_fetchers == config.fetch_max_bytes == 70_000


def test_brokers_may_be_named_beside_zookeeper() -> None:
    config, _ = load_consumer_config({**LEAST, "bootstrap.servers": "a:1,b:2"})
    assert config.cluster_config.bootstrap_servers == ("a:1", "b:2")


def test_the_fetch_size_grows_no_further_than_the_larger_of_both_bounds() -> None:
    config, _ = load_consumer_config({**LEAST, "fetch.max.bytes": "100"})
    assert config.largest_fetch_bytes == config.fetch_message_max_bytes
    config, _ = load_consumer_config({**LEAST, "fetch.message.max.bytes": "100"})
    assert config.largest_fetch_bytes == 52_428_800


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group.id", "no/slash"),
        ("group.id", ""),
        ("group.id", ".."),
        ("consumer.id", "no/slash"),
        ("rebalance.backoff.ms", "-1"),
        ("zookeeper.connection.timeout.ms", "0"),
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
