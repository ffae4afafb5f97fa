"""Settings of members of coordinators' groups."""

from typing import Any

import pytest

from clients.high_level.connector import ConsumerConnector
from clients.high_level.member_config import load_member_config
from protocol.settings import SettingError

LEAST = {"bootstrap.servers": "b:1", "group.id": "g", "membership": "coordinator"}


def test_defaults_are_those_of_javas_consumer() -> None:
    config, notes = load_member_config(LEAST)
    assert notes == []
    assert config.session_timeout_ms == 45_000
    assert config.heartbeat_interval_ms == 3000
    assert config.max_poll_interval_ms == 300_000
    assert config.partition_assignment_strategy == ("range", "cooperative-sticky")
    assert (config.auto_commit_enable, config.auto_commit_interval_ms) == (True, 5000)
    assert config.auto_offset_reset == "largest"
    assert not config.consumer_settings.is_cooperative


def test_names_of_java_are_taken() -> None:
    config, _ = load_member_config(
        {
            **LEAST,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": (
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            ),
        }
    )
    assert (config.auto_commit_enable, config.auto_offset_reset) == (False, "smallest")
    assert config.partition_assignment_strategy == ("cooperative-sticky",)
    assert config.consumer_settings.is_cooperative


def test_settings_of_fetches_and_connections_have_javas_names_too() -> None:
    config, notes = load_member_config(
        {
            **LEAST,
            "request.timeout.ms": "101",
            "retry.backoff.ms": "102",
            "reconnect.backoff.ms": "103",
            "reconnect.backoff.max.ms": "104",
            "socket.connection.setup.timeout.ms": "105",
            "default.api.timeout.ms": "106",
            "receive.buffer.bytes": "107",
            "max.partition.fetch.bytes": "108",
            "fetch.max.wait.ms": "99",
            "max.poll.records": "500",
        }
    )
    connections = config.cluster_config
    assert (connections.request_timeout_ms, config.refresh_leader_backoff_ms) == (101, 102)
    assert (connections.reconnect_backoff_ms, connections.reconnect_backoff_max_ms) == (103, 104)
    assert connections.socket_connection_setup_timeout_ms == 105
    assert (connections.default_api_timeout_ms, connections.receive_buffer_bytes) == (106, 107)
    assert (config.fetch_message_max_bytes, config.fetch_wait_max_ms) == (108, 99)
    assert notes == ["max.poll.records=500: a stream hands out one message at a time"]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("zookeeper.connect", "z:1", "zookeeper.connect.*no meaning with membership=coordinator"),
        ("zookeeper_sync_time_ms", "1", "zookeeper.sync.time.ms.*no meaning"),
        ("rebalance.max.retries", "1", "rebalance.max.retries.*no meaning"),
        ("offsets.storage", "zookeeper", "offsets.storage"),
        ("dual.commit.enabled", "true", "dual.commit.enabled.*offsets are with the coordinator"),
        ("partition.assignment.strategy", "clustered", "partition.assignment.strategy.*knows"),
        ("group.instance.id", "a/b", "group.instance.id.*letters, digits"),
        ("group.instance.id", "..", "group.instance.id.*may not be"),
        ("heartbeat.interval.ms", "45000", "heartbeat.interval.ms.*below session.timeout.ms"),
        ("nonsense", "1", "nonsense"),
    ],
)
def test_setting_without_a_meaning_is_refused_by_name(name: str, value: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        load_member_config({**LEAST, name: value})


@pytest.mark.fault("strangers-146")
def test_ids_are_whatever_brokers_take() -> None:
    """Stock clients have such groups: there is no node to name."""
    odd = 'live, \U0001f600/"x"'
    config, _ = load_member_config({**LEAST, "group.id": odd, "client.id": odd})
    assert (config.group_id, config.client_id) == (odd, odd)
    with pytest.raises(SettingError, match=r"group\.id.*may not be empty"):
        load_member_config({**LEAST, "group.id": ""})


@pytest.mark.parametrize("missing", ["bootstrap.servers", "group.id"])
def test_setting_that_is_needed_is_named(missing: str) -> None:
    settings: dict[str, Any] = {name: value for name, value in LEAST.items() if name != missing}
    with pytest.raises(SettingError, match=missing):
        load_member_config(settings)


def test_connector_takes_them_as_keywords_too() -> None:
    connector = ConsumerConnector(
        bootstrap_servers="b:1", group_id="g", membership="coordinator", session_timeout_ms=1_0000
    )
    assert connector.consumer_id.startswith("g-")
