"""Our Python clients beside those of others, all on our broker, one partition, records of 100 B.

The peers are kafka-python's consumer and aiokafka's producer, in this same process, with the same
settings: 1 MB a fetch; 16 KB batches, no linger, acks=1. A consumer is timed from its first record
on, so that connecting and joining a group do not count, and looks at every value.

Our streams also stand beside bare loops of our own, which go from fetch to fetch by offset without
group, queue or commit: over SimpleConsumer's records, and over the tuples these are made of.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aiokafka import AIOKafkaProducer  # type: ignore[import-untyped]
from kafka import KafkaConsumer  # type: ignore[import-untyped]
from kafka import TopicPartition as KafkaTopicPartition

from benchmarks.brokers import Broker
from benchmarks.fetch import FETCH_BYTES, fill
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Row, Wanted, at_least
from clients.fetching import FetchedPartition
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer

TOPIC_BYTES = 24 * 1024 * 1024
BATCH_BYTES = 16 * 1024
RECORDS_SENT = 150_000
VALUE = b"x" * 100
NEARLY = at_least(0.87)
"""At most 15 % more time."""

Timed = Callable[[Broker, str, int], float]
"""Moves so many records and gives the seconds it took."""

_group_numbers = itertools.count()


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Records a second; the peer's column has the other project's client."""
    with broker.create_topic() as topic:
        records = fill(broker, topic, TOPIC_BYTES)
        for question, wanted, *pair in _CONSUMERS:
            (figures,) = alternate([_rate(each, broker, topic, records) for each in pair], rounds)
            yield Row(question, "records/s", wanted, figures)
    with broker.create_topic() as topic:
        pair = [_our_producer, _aiokafka_producer]
        (figures,) = alternate([_rate(each, broker, topic, RECORDS_SENT) for each in pair], rounds)
        yield Row("our producer · aiokafka's", "records/s", at_least(0.8), figures)


def _rate(timed: Timed, broker: Broker, topic: str, records: int) -> Contestant:
    return lambda _: (records / timed(broker, topic, records),)


def _streams(broker: Broker, topic: str, records: int) -> float:
    settings = {
        "zookeeper.connect": broker.zookeeper,
        "group.id": f"benchmark-{next(_group_numbers)}",
        "auto.offset.reset": "smallest",
        "fetch.message.max.bytes": FETCH_BYTES,
    }

    async def consume() -> float:
        left, begins = records, 0.0
        async with ConsumerConnector(settings) as connector:
            streams = await connector.create_message_streams({topic: 1})
            async for message in streams[topic][0]:
                begins = begins or time.perf_counter()
                left -= bool(message.value)
                if not left:
                    break
            return time.perf_counter() - begins

    return asyncio.run(consume())


def _iterated(broker: Broker, topic: str, records: int) -> float:
    left, begins = records, 0.0
    consumer = _kafka_python(broker, topic)
    for message in consumer:
        begins = begins or time.perf_counter()
        left -= bool(message.value)
        if not left:
            break
    ends = time.perf_counter()
    consumer.close()
    return ends - begins


def _by_fetching(
    look_at: Callable[[FetchedPartition], int], broker: Broker, topic: str, records: int
) -> float:
    async def consume() -> float:
        left, begins, offset = records, 0.0, 0
        async with SimpleConsumer(*broker.address) as consumer:
            while left:
                fetched = await consumer.fetch(FetchRequest(topic, 0, offset, FETCH_BYTES))
                begins = begins or time.perf_counter()
                offset = fetched.next_offset
                left -= look_at(fetched)
            return time.perf_counter() - begins

    return asyncio.run(consume())


def _records(fetched: FetchedPartition) -> int:
    values = 0
    for record in fetched.records:
        values += bool(record.value)
    return values


def _rows(fetched: FetchedPartition) -> int:
    values = 0
    for row in fetched.rows:
        values += bool(row[3])
    return values


def _polled(broker: Broker, topic: str, records: int) -> float:
    left, begins = records, 0.0
    consumer = _kafka_python(broker, topic)
    while left:
        for polled in consumer.poll(timeout_ms=1000).values():
            begins = begins or time.perf_counter()
            for record in polled:
                left -= bool(record.value)
    ends = time.perf_counter()
    consumer.close()
    return ends - begins


def _kafka_python(broker: Broker, topic: str) -> Any:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
    )
    consumer.assign([KafkaTopicPartition(topic, 0)])
    return consumer


def _our_producer(broker: Broker, topic: str, records: int) -> float:
    async def produce() -> float:
        settings = {"bootstrap.servers": broker.bootstrap, "acks": "1", "batch.size": BATCH_BYTES}
        async with Producer(settings) as producer:
            return await _sent(producer, topic, records)

    return asyncio.run(produce())


def _aiokafka_producer(broker: Broker, topic: str, records: int) -> float:
    async def produce() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, acks=1, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        try:
            return await _sent(producer, topic, records)
        finally:
            await producer.stop()

    return asyncio.run(produce())


async def _sent(producer: Any, topic: str, records: int) -> float:
    """Seconds until so many are acknowledged, after a first one."""
    await producer.send_and_wait(topic, VALUE)
    begins = time.perf_counter()
    for _ in range(records):
        await producer.send(topic, VALUE)
    await producer.flush()
    return time.perf_counter() - begins


_FETCH_LOOP, _ROW_LOOP = partial(_by_fetching, _records), partial(_by_fetching, _rows)
_CONSUMERS: tuple[tuple[str, Wanted, Timed, Timed], ...] = (
    ("ConsumerConnector's streams · kafka-python, iterated", at_least(1.0), _streams, _iterated),
    ("SimpleConsumer's fetch · kafka-python, polled", at_least(1.0), _FETCH_LOOP, _polled),
    ("ConsumerConnector's streams · SimpleConsumer's fetch", NEARLY, _streams, _FETCH_LOOP),
    ("ConsumerConnector's streams · bare rows of a fetch", NEARLY, _streams, _ROW_LOOP),
)
