"""Settings with `producer.type`: names of 0.7 and 0.8, their defaults, and refusals."""

from typing import Any

import pytest

from clients.producer.old_config import OldProducerConfig, load_old_producer_config, properties
from clients.producer.producer import Producer
from protocol.settings import SettingError


def loaded(**settings: Any) -> OldProducerConfig:
    given = {name.replace("__", "."): value for name, value in settings.items()}
    needed = {"bootstrap.servers": "h:1", "producer.type": "async"}
    config, _ = load_old_producer_config({**needed, **given})
    return config


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("queue.time", "queue.buffering.max.ms", 7),
        ("queue.size", "queue.buffering.max.messages", 700),
        ("batch.size", "batch.num.messages", 7),
        ("queue.enqueueTimeout.ms", "queue.enqueue.timeout.ms", 7),
        ("num.retries", "message.send.max.retries", 7),
        ("acks", "request.required.acks", "all"),
        ("buffer.size", "send.buffer.bytes", 7),
        ("connect.timeout.ms", "socket.connection.setup.timeout.ms", 7),
        ("max.message.size", "max.request.size", 7),
        ("zk.connect", "zookeeper.connect", "z:2"),
        ("compression.type", "compression.codec", "gzip"),
    ],
)
def test_older_name_means_the_same_setting(old: str, new: str, value: Any) -> None:
    assert loaded(**{old: value}) == loaded(**{new: value})


def test_brokers_are_named_in_any_of_three_ways() -> None:
    names = {"metadata.broker.list": "a:1,b:2", "broker.list": "0:a:1,1:b:2"}
    for name, value in names.items():
        config, _ = load_old_producer_config({name: value, "producer.type": "sync"})
        assert config.bootstrap_servers == ("a:1", "b:2")


def test_defaults_are_those_of_0_8_2_but_for_acks() -> None:
    config = loaded()
    assert (config.queue_buffering_max_ms, config.queue_buffering_max_messages) == (5000, 10_000)
    assert (config.batch_num_messages, config.queue_enqueue_timeout_ms) == (200, -1)
    assert (config.message_send_max_retries, config.retry_backoff_ms) == (3, 100)
    assert (config.request_timeout_ms, config.metadata_max_age_ms) == (10_000, 600_000)
    assert config.request_required_acks == "1"


@pytest.mark.parametrize(
    ("codec", "meant"), [("0", "none"), (1, "gzip"), ("2", "snappy"), ("lz4", "lz4")]
)
def test_codec_is_a_name_or_the_number_of_0_7(codec: Any, meant: str) -> None:
    assert loaded(compression__codec=codec).producer_config.compression_type == meant


def test_sender_gets_as_long_as_all_attempts_may_take() -> None:
    config = loaded(request__timeout__ms=1000, retry__backoff__ms=10, message__send__max__retries=2)
    assert config.producer_config.delivery_timeout_ms == 3 * 1010
    assert config.producer_config.retries == 2


def test_batch_above_the_queue_is_refused_if_set_and_made_smaller_if_not() -> None:
    assert loaded(queue__size=10).batch_num_messages == 10
    with pytest.raises(SettingError, match=r"batch\.num\.messages"):
        loaded(queue__size=10, batch__size=11)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("producer.type", "both"),
        ("request.required.acks", "3"),
        ("compression.codec", "9"),
        ("queue.buffering.max.messages", "0"),
        ("queue.msec", "5"),
    ],
)
def test_setting_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(SettingError) as refused:
        loaded(**{name: value})
    assert refused.value.name == name


def test_setting_without_effect_is_noted() -> None:
    given = {"bootstrap.servers": "h:1", "producer.type": "sync", "callback.handler": object()}
    _, notes = load_old_producer_config({**given, "reconnect.interval": 3})
    named = [note.partition(":")[0] for note in notes]
    assert named == ["reconnect.interval=3", "callback.handler"]


@pytest.mark.parametrize("name", ["queue.time", "request.required.acks", "event.handler"])
def test_setting_that_needs_producer_type_says_so(name: str) -> None:
    with pytest.raises(SettingError, match=r"with producer\.type") as refused:
        Producer({"bootstrap.servers": "h:1", name: "1"})
    assert refused.value.name == name


def test_handler_properties_are_pairs() -> None:
    assert properties("a=b, c=d") == {"a": "b", "c": "d"}
    assert properties("") == {}
    with pytest.raises(SettingError, match="a=b=c"):
        loaded(callback__handler__props="a=b=c")
