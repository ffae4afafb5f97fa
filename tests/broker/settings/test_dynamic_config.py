"""The settings of a broker that can change while it runs, and their effective values."""

from __future__ import annotations

import pytest

from broker.network.connection_quotas import Limits
from broker.settings.config import BrokerConfig, load_broker_config
from broker.settings.dynamic_config import (
    DYNAMIC,
    NotDynamic,
    apply_dynamic,
    check_change,
    dynamic_value,
    refuse_contradiction,
)
from protocol.settings import SettingError


def static(**given: str) -> BrokerConfig:
    properties = {name.replace("_", "."): value for name, value in given.items()}
    return load_broker_config({"zookeeper.connect": "zk:1"} | properties)[0]


def test_what_changed_stands_over_the_file_and_the_rest_stays() -> None:
    before = static(log_retention_hours="1", num_partitions="3", log_segment_bytes="99")
    now = apply_dynamic(
        before,
        {
            "log.retention.ms": "5",
            "min.insync.replicas": "2",
            "leader.replication.throttled.rate": "77",
        },
    )
    assert (now.log.retention_ms, now.log.min_insync_replicas, now.log.segment_bytes) == (5, 2, 99)
    assert (now.leader_replication_throttled_rate, now.num_partitions) == (77, 3)
    assert now.follower_replication_throttled_rate == before.follower_replication_throttled_rate


def test_a_value_that_cannot_be_is_named_as_the_broker_names_it() -> None:
    with pytest.raises(SettingError, match=r"log\.roll\.ms"):
        apply_dynamic(static(), {"log.roll.ms": "0"})


@pytest.mark.fault("broker-7")
@pytest.mark.parametrize("name", ["log.retention.ms", "log.flush.interval.messages"])
def test_a_value_that_one_topic_may_have_and_not_all_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=name):
        apply_dynamic(static(), {name: "0"})


@pytest.mark.parametrize("rate", ["-1", "fast"])
def test_a_rate_is_a_number_of_bytes(rate: str) -> None:
    with pytest.raises(SettingError, match="follower"):
        apply_dynamic(static(), {"follower.replication.throttled.rate": rate})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("num.partitions", "read when the broker starts"),
        ("log.retention.hours", "read when the broker starts"),
        ("offsets.topic.num.partitions", "read when the broker starts"),
        ("log.message.format.version", "read when the broker starts"),
        ("log.cleaner.enable", "read when the broker starts"),
        ("authorizer.class.name", "read when the broker starts"),
        ("process.roles", "no KRaft mode"),
        ("listener.name.x.ssl.client.auth", "only stores of TLS and limits of connections can"),
    ],
)
def test_what_cannot_change_is_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(NotDynamic, match=reason):
        apply_dynamic(static(), {name: "1"})


@pytest.mark.fault("outside-O8")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("background.threads", "20"),
        ("num.io.threads", "4"),
        ("num.network.threads", "6"),
        ("num.recovery.threads.per.data.dir", "2"),
        ("num.replica.fetchers", "2"),
        ("metric.reporters", "org.example.Reporter"),
        ("sasl.login.refresh.buffer.seconds", "60"),
    ],
)
def test_change_of_what_has_no_effect_is_taken_and_kept(name: str, value: str) -> None:
    check_change(static(), name, value)
    assert dynamic_value(apply_dynamic(static(), {name: value}), name) == value


@pytest.mark.parametrize(
    ("value", "refusal"),
    [
        ("0", "value should be at least 1"),
        ("3", "value should be at least half the current value 8"),
        ("17", "value should not be greater than double the current value 8"),
        ("many", "Invalid value many for configuration num.io.threads: Not a number of type INT"),
    ],
)
def test_number_of_threads_does_not_leap(value: str, refusal: str) -> None:
    with pytest.raises(SettingError, match=refusal):
        check_change(static(), "num.io.threads", value)
    # Beside what was set last.
    check_change(apply_dynamic(static(), {"num.io.threads": "12"}), "num.io.threads", "17")


def test_the_stores_of_a_listener_can_change_with_its_prefix_only() -> None:
    name = "listener.name.inside.ssl.keystore.location"
    config = apply_dynamic(static(), {name: "/new"})
    assert config.listener_settings("INSIDE")["ssl.keystore.location"] == "/new"
    with pytest.raises(SettingError, match="only per-listener using the listener prefix"):
        apply_dynamic(static(), {"ssl.keystore.location": "/new"})


def test_limits_of_connections_can_change_of_the_broker_and_of_a_listener() -> None:
    own = "listener.name.plaintext.max.connections"
    before = static(max_connections="9", **{own: "8"})
    now = apply_dynamic(before, {own: "7", "max.connection.creation.rate": "5"})
    assert now.connection_limits.broker == Limits(9, 5)
    assert now.connection_limits.listeners == {"PLAINTEXT": Limits(7, 5)}


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_a_listener_cannot_be_closed_by_its_limit(value: str) -> None:
    name = "listener.name.plaintext.max.connections"
    with pytest.raises(SettingError, match=f"Invalid value {value} for configuration {name}"):
        apply_dynamic(static(), {name: value})


def test_addresses_may_have_no_connection_only_where_others_have_some() -> None:
    per_ip, overrides = "max.connections.per.ip", "max.connections.per.ip.overrides"
    now = apply_dynamic(static(), {per_ip: "0", overrides: "10.0.0.1:5"})
    assert (now.connection_limits.per_ip, now.connection_limits.overrides) == (0, ("10.0.0.1:5",))
    with pytest.raises(SettingError, match="set to zero only if"):
        apply_dynamic(static(), {per_ip: "0"})
    with pytest.raises(SettingError, match="is not host:number"):
        refuse_contradiction(static(), {overrides: "10.0.0.1"})


def test_a_name_that_is_no_setting_is_another_error() -> None:
    with pytest.raises(SettingError) as raised:
        apply_dynamic(static(), {"log.retention.msec": "1"})
    assert not isinstance(raised.value, NotDynamic)


def test_every_setting_that_can_change_has_a_value_and_can_be_set_to_it() -> None:
    config = static()
    for name in DYNAMIC:
        value = dynamic_value(config, name)
        # Not given: those that are listened on.
        if value is None:
            assert name in ("listeners", "advertised.listeners")
            continue
        text = ",".join(value) if isinstance(value, tuple) else str(value).replace("F", "f")
        assert dynamic_value(apply_dynamic(config, {name: text}), name) == value


def test_the_cleaner_goes_by_what_changed_and_by_its_file_for_the_rest() -> None:
    before = static(log_cleaner_threads="2", log_cleaner_backoff_ms="7")
    now = apply_dynamic(before, {"log.cleaner.threads": "3", "log.cleaner.io.buffer.size": "99"})
    assert (now.cleaner.threads, now.cleaner.io_buffer_size, now.cleaner.backoff_ms) == (3, 99, 7)


@pytest.mark.parametrize("threads", ["1", "2", "3", "4"])
def test_threads_of_the_cleaner_may_be_halved_and_doubled(threads: str) -> None:
    check_change(static(log_cleaner_threads="2"), "log.cleaner.threads", threads)


@pytest.mark.parametrize("threads", ["2", "11"])
def test_threads_of_the_cleaner_do_not_leap(threads: str) -> None:
    with pytest.raises(SettingError, match="Log cleaner threads cannot be"):
        check_change(static(log_cleaner_threads="5"), "log.cleaner.threads", threads)


def test_each_thread_of_the_cleaner_has_more_than_a_mebibyte() -> None:
    apply_dynamic(static(), {"log.cleaner.dedupe.buffer.size": str(2**20 + 1)})
    with pytest.raises(SettingError, match="1 MiB"):
        apply_dynamic(static(), {"log.cleaner.dedupe.buffer.size": str(2**20)})
    with pytest.raises(SettingError, match="1 MiB"):
        static(log_cleaner_threads="100", log_cleaner_dedupe_buffer_size=str(100 * 2**20))


def test_settings_contradict_each_other_as_they_would_take_effect() -> None:
    threads, buffer = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
    refuse_contradiction(static(), {threads: "200", buffer: str(2**30)})
    refuse_contradiction(static(), {threads: "many", buffer: str(2**21), "future": "1"})
    with pytest.raises(SettingError, match="1 MiB"):
        refuse_contradiction(static(), {threads: "2", buffer: str(2**21)})
    with pytest.raises(SettingError, match="1 MiB"):
        refuse_contradiction(static(log_cleaner_threads="2"), {buffer: str(2**21), "future": "1"})
