"""Stock clients log in at our broker: each mechanism once, each client at least once.

| client | mechanism |
|---|---|
| kafka-python | SCRAM-SHA-512 |
| aiokafka | SCRAM-SHA-256 |
| confluent-kafka | PLAIN, OAUTHBEARER |
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import aiokafka  # type: ignore[import-untyped]
import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest

from protocol.sasl.exchange import OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512
from tests.stage.sasl_broker import PASSWORD, USER, SaslBroker, signed_token

TIMEOUT_S = 30.0
VALUES = [b"a", b"b", b"c"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    with SaslBroker(tmp_path_factory.mktemp("sasl")) as running:
        yield running


def new_name() -> str:
    return f"sasl-{uuid4().hex[:8]}"


def test_kafka_python_logs_in_by_scram_sha_512(broker: SaslBroker) -> None:
    topic = new_name()
    settings = {
        "bootstrap_servers": broker.client(SCRAM_SHA_512)["bootstrap.servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": SCRAM_SHA_512,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    with contextlib.closing(kafka.KafkaProducer(**settings)) as producer:
        for value in VALUES:
            producer.send(topic, value).get(TIMEOUT_S)
    consumer = kafka.KafkaConsumer(
        topic,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
        **settings,
    )
    with contextlib.closing(consumer):
        assert [m.value for _, m in zip(VALUES, consumer, strict=False)] == VALUES


async def test_aiokafka_logs_in_by_scram_sha_256(broker: SaslBroker) -> None:
    topic = new_name()
    settings = {
        "bootstrap_servers": broker.client(SCRAM_SHA_256)["bootstrap.servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": SCRAM_SHA_256,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    async with aiokafka.AIOKafkaProducer(**settings) as producer:
        for value in VALUES:
            await producer.send_and_wait(topic, value)
    async with (
        asyncio.timeout(TIMEOUT_S),
        aiokafka.AIOKafkaConsumer(
            topic, group_id=topic, auto_offset_reset="earliest", **settings
        ) as consumer,
    ):
        assert [(await consumer.getone()).value for _ in VALUES] == VALUES


def test_confluent_kafka_logs_in_by_plain(broker: SaslBroker) -> None:
    assert produce_and_consume(broker.client(PLAIN)) == VALUES


def test_confluent_kafka_logs_in_by_a_signed_token(broker: SaslBroker) -> None:
    asked = []

    def fetch_token(config: str) -> tuple[str, float]:
        asked.append(config)
        return signed_token(), time.time() + 3600

    settings: dict[str, Any] = dict(broker.client(OAUTHBEARER))
    del settings["sasl.username"], settings["sasl.password"]
    assert produce_and_consume(settings | {"oauth_cb": fetch_token}) == VALUES
    assert asked


def test_confluent_kafka_is_told_why_it_cannot_log_in(broker: SaslBroker) -> None:
    texts: list[str] = []
    settings: dict[str, Any] = broker.client(SCRAM_SHA_256) | {"sasl.password": "wrong"}
    producer = confluent_kafka.Producer(
        settings | {"error_cb": lambda error: texts.append(error.str())}
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not any("invalid credentials with SASL mechanism" in text for text in texts):
        assert time.monotonic() < deadline, texts
        producer.poll(0.1)


def produce_and_consume(settings: dict[str, Any]) -> list[Any]:
    topic = new_name()
    producer = confluent_kafka.Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer(
        settings | {"group.id": topic, "auto.offset.reset": "earliest"}
    )
    values: list[Any] = []
    try:
        consumer.subscribe([topic])
        while len(values) < len(VALUES):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, values
            if not message.error():
                values.append(message.value())
    finally:
        consumer.close()
    return values
