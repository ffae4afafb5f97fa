import pickle

import pytest

from protocol.settings import SettingError
from spark_connector.sink.options import SinkOptions, read_sink_options

NEEDED = {"kafka.bootstrap.servers": "b:9092", "topic": "out"}


def read(**more: str) -> SinkOptions:
    return read_sink_options({**NEEDED, **{k.replace("_", "."): v for k, v in more.items()}})


def refusal(given: dict[str, str]) -> str:
    with pytest.raises(SettingError) as refused:
        read_sink_options(given)
    return str(refused.value)


def test_rows_are_acknowledged_by_all_and_numbered_unless_told_otherwise() -> None:
    config = read().producer_config
    assert (config.acks, config.enable_idempotence, config.batch_size) == ("all", True, 262_144)


def test_who_asks_for_fewer_acknowledgements_asks_for_no_numbers() -> None:
    config = read(kafka_acks="1").producer_config
    assert (config.acks, config.enable_idempotence) == ("1", False)


def test_what_kafka_begins_is_a_setting_of_the_producer_in_any_case() -> None:
    config = read(KAFKA_COMPRESSION_TYPE="zstd", kafka_linger_ms="7").producer_config
    assert (config.compression_type, config.linger_ms) == ("zstd", 7)


def test_options_travel_to_workers() -> None:
    options = read(delivery="once")
    assert pickle.loads(pickle.dumps(options)) == options


def test_the_brokers_are_required() -> None:
    assert refusal({"topic": "out"}).startswith("kafka.bootstrap.servers: is required")


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("tpoic", "x", "tpoic: is not a setting known here; did you mean topic"),
        ("kafka.ackss", "all", "kafka.ackss: is not a setting known here; did you mean acks"),
        ("kafka.key.serializer", "x", "kafka.key.serializer: keys are sent as they are"),
        ("kafka.acks", "2", "kafka.acks"),
        ("kafka.transactional.id", "x", "kafka.transactional.id: the tasks of a query"),
        ("topic", "", "topic: names no topic"),
        ("kafka.bootstrap.servers", "b", "kafka.bootstrap.servers: 'b' is not host:port"),
        ("delivery", "twice", "delivery: String must be one of: at-least-once, once"),
    ],
)
def test_what_cannot_be_is_refused_with_the_options_name(
    option: str, value: str, text: str
) -> None:
    assert text in refusal({**NEEDED, option: value})


def test_once_needs_one_topic_to_look_for_what_was_written() -> None:
    given = {"kafka.bootstrap.servers": "b:9092", "delivery": "once"}
    assert refusal(given).startswith("topic: is required with delivery=once")


@pytest.mark.parametrize(
    ("name", "value"), [("acks", "1"), ("retries", "0"), ("enable.idempotence", "false")]
)
def test_once_needs_numbers(name: str, value: str) -> None:
    refused = refusal({**NEEDED, "delivery": "once", f"kafka.{name}": value})
    assert refused.startswith("delivery: once needs kafka.acks=all")
