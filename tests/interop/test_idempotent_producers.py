"""Idempotent producers of every make, over a link that loses answers: each record once, in order.

What they were answered is lost on the way, so they send it again; and the broker knows it.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiokafka  # type: ignore[import-untyped]
import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest

from broker.kbroker.local_cluster import claim_ports
from clients.producer.producer import Producer
from protocol.topic_partition import TopicPartition
from tests.interop.traffic import new_topic
from tests.stage.cluster import DevCluster
from tests.stage.network import HOST, LossyLink
from tests.stage.topic_contents import contents

MESSAGES = [b"%d" % number for number in range(200)]
LONG_AGO_MS = 1_000_000_000_000
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def link() -> Iterator[LossyLink]:
    with LossyLink(claim_ports(0, 1)[0]) as made:
        yield made


@pytest.fixture(scope="module")
def bootstrap(link: LossyLink, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that can be reached by the link alone."""
    directory: Path = tmp_path_factory.mktemp("idempotent")
    settings = ("--set", f"advertised.listeners=PLAINTEXT://{HOST}:{link.port}")
    with DevCluster(directory, ("--port", str(link.target_port), *settings)):
        yield f"{HOST}:{link.port}"


@pytest.fixture
def topic(bootstrap: str) -> str:
    return asyncio.run(new_topic(bootstrap))


def stored(bootstrap: str, topic: str) -> list[bytes | None]:
    records = asyncio.run(contents(bootstrap, TopicPartition(topic, 0)))
    return [record.value for record in records]


def send_with_kafka_python(bootstrap: str, topic: str, *, idempotent: bool) -> list[int]:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=idempotent,
        acks="all",
        retries=100,
        retry_backoff_ms=10,
        max_in_flight_requests_per_connection=5 if idempotent else 1,
        batch_size=100,
        reconnect_backoff_ms=10,
    )
    with contextlib.closing(producer):
        futures = [
            producer.send(topic, value, partition=0, timestamp_ms=LONG_AGO_MS) for value in MESSAGES
        ]
        return [future.get(TIMEOUT_S).offset for future in futures]


def test_without_numbers_the_link_makes_duplicates(
    bootstrap: str, topic: str, link: LossyLink
) -> None:
    lost_before = link.lost
    send_with_kafka_python(bootstrap, topic, idempotent=False)
    assert link.lost > lost_before
    assert len(stored(bootstrap, topic)) > len(MESSAGES)


def test_kafka_python_writes_each_record_once(bootstrap: str, topic: str, link: LossyLink) -> None:
    lost_before = link.lost
    offsets = send_with_kafka_python(bootstrap, topic, idempotent=True)
    assert link.lost > lost_before
    assert stored(bootstrap, topic) == MESSAGES
    assert offsets == list(range(len(MESSAGES)))


def test_confluent_kafka_writes_each_record_once(
    bootstrap: str, topic: str, link: LossyLink
) -> None:
    lost_before = link.lost
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 5,
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
        }
    )
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in MESSAGES:
        producer.produce(topic, value, partition=0, on_delivery=delivered)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert link.lost > lost_before
    assert stored(bootstrap, topic) == MESSAGES


def test_aiokafka_writes_each_record_once(bootstrap: str, topic: str, link: LossyLink) -> None:
    lost_before = link.lost

    async def send() -> list[int]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=200,
            retry_backoff_ms=10,
            request_timeout_ms=TIMEOUT_S * 1000,
        ) as producer:
            sent = [await producer.send(topic, value, partition=0) for value in MESSAGES]
            return [(await future).offset for future in sent]

    offsets = asyncio.run(send())
    assert link.lost > lost_before
    assert stored(bootstrap, topic) == MESSAGES
    assert offsets == list(range(len(MESSAGES)))


def test_ours_writes_each_record_once(bootstrap: str, topic: str, link: LossyLink) -> None:
    lost_before = link.lost

    async def send() -> list[int]:
        async with Producer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            batch_size=200,
            retry_backoff_ms=10,
            reconnect_backoff_ms=10,
        ) as producer:
            sent = [await producer.send(topic, value, partition=0) for value in MESSAGES]
            return [(await future).offset for future in sent]

    offsets = asyncio.run(send())
    assert link.lost > lost_before
    assert stored(bootstrap, topic) == MESSAGES
    assert offsets == list(range(len(MESSAGES)))


def test_confluent_kafka_goes_on_where_its_topic_was_made_again(dev_cluster: DevCluster) -> None:
    """Several batches are on their way, and the new log knows nothing of their numbers."""
    address, topic = dev_cluster.address("bootstrap"), "made-again"
    dev_cluster.create_topic(topic, 1)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "batch.num.messages": 5,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    failed: list[Any] = []

    def produce(value: bytes) -> None:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: error and failed.append(error)
        )

    def make_again() -> None:
        deleted = dev_cluster.run("kbroker", "topics", "delete", topic)
        assert deleted.returncode == 0, deleted.stderr
        # Or the producer has it made, which asks for its metadata.
        made = dev_cluster.run("kbroker", "topics", "create", topic)
        assert made.returncode == 0 or "already exists" in made.stderr

    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(make_again)
        while not made.done():
            if len(producer) < 1000:
                produce(b"on and on")
            producer.poll(0)
        made.result()
    for value in MESSAGES:
        produce(value)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert stored(address, topic)[-len(MESSAGES) :] == MESSAGES
