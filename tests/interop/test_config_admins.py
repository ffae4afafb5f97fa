"""The admin clients of kafka-python and librdkafka change settings of ours, and see disks."""

from __future__ import annotations

import contextlib
from uuid import uuid4

import confluent_kafka
import kafka  # type: ignore[import-untyped]
import kafka.admin  # type: ignore[import-untyped]
import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from tests.stage.cluster import DevCluster

TIMEOUT_S = 30.0
BROKER = "0"


@pytest.fixture
def bootstrap(dev_cluster: DevCluster) -> str:
    return dev_cluster.address("bootstrap")


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic that is there."""
    name = f"t-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


@pytest.mark.parametrize("incremental", [True, False])
def test_kafka_python_alters_topics_and_brokers(
    bootstrap: str, topic: str, incremental: bool
) -> None:
    of = kafka.admin.ConfigResource
    types = kafka.admin.ConfigResourceType
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        admin.alter_configs(
            [of(types.TOPIC, topic, configs={"retention.ms": "77"})], incremental=incremental
        )
        described = admin.describe_configs([of(types.TOPIC, topic)], config_filter="all")
        found = described["topic"][topic]["retention.ms"]
        assert (found["value"], found["config_source"]) == ("77", "DYNAMIC_TOPIC_CONFIG")
        try:
            admin.alter_configs(
                [of(types.BROKER, BROKER, configs={"log.roll.ms": "88"})], incremental=incremental
            )
            described = admin.describe_configs([of(types.BROKER, BROKER)], config_filter="all")
            found = described["broker"][BROKER]["log.roll.ms"]
            assert (found["value"], found["config_source"]) == ("88", "DYNAMIC_BROKER_CONFIG")
        finally:
            admin.alter_configs(
                [of(types.BROKER, BROKER, configs={"log.roll.ms": ("DELETE", None)})],
                incremental=True,
            )


def test_kafka_python_sees_the_sizes_of_logs(bootstrap: str, topic: str) -> None:
    with contextlib.closing(kafka.KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        producer.send(topic, b"x" * 1000).get(TIMEOUT_S)
    with contextlib.closing(kafka.KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        (found,) = admin.describe_log_dirs([topic])
        (size,) = [
            partition["partition_size"]
            for log_dir in found["log_dirs"]
            for each in log_dir["topics"]
            if each["name"] == topic
            for partition in each["partitions"]
        ]
        assert 1000 < size < 1200


def test_librdkafka_changes_single_settings(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
        ConfigEntry("retention.ms", "77", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["retention.ms"].value == "77"


def test_librdkafka_replaces_all_settings_and_is_told_what_cannot_be(
    bootstrap: str, topic: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def set_to(name: str, value: str) -> None:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, set_config={name: value})
        admin.alter_configs([resource])[resource].result(TIMEOUT_S)

    set_to("flush.ms", "77")
    set_to("segment.ms", "88")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert (configs["segment.ms"].value, configs["flush.ms"].is_default) == ("88", True)
    for name, code in (
        ("nonsense", confluent_kafka.KafkaError.INVALID_CONFIG),
        ("segment.ms", confluent_kafka.KafkaError.INVALID_REQUEST),
    ):
        with pytest.raises(confluent_kafka.KafkaException) as raised:
            set_to(name, "x")
        assert raised.value.args[0].code() == code
