"""Compare our Python clients with others on our broker: one partition, records of 100 B.

The peers are kafka-python's consumer and aiokafka's producer, in this process, with the same
settings: 1 MB a fetch; 16 KB batches, no linger, acks=1. A consumer is timed from its first record,
so that connecting and joining a group do not count, and reads every value.

Our streams are also compared with bare loops of ours, which fetch by offset without group, queue or
commit: over SimpleConsumer's records, and over the tuples that records are made of.
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
"""Move so many records; return the seconds."""

_group_numbers = itertools.count()


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield rows of records a second; the peer's column has the other project's client."""
    with broker.create_topic() as topic:
        # All consumers read the same records.
        records = fill(broker, topic, TOPIC_BYTES)
        for question, wanted, *pair in _CONSUMERS:
            contestants = [rate(client, broker, topic, records) for client in pair]
            (figures,) = alternate(contestants, rounds)
            yield Row(question, "records/s", wanted, figures)

    with broker.create_topic() as topic:
        # Both producers append to one topic.
        pair = [_our_producer, _aiokafka_producer]
        contestants = [rate(client, broker, topic, RECORDS_SENT) for client in pair]
        (figures,) = alternate(contestants, rounds)
        yield Row("our producer · aiokafka's", "records/s", at_least(0.8), figures)


def rate(timed: Timed, broker: Broker, topic: str, records: int) -> Contestant:
    """Return a contestant whose figure is records a second."""
    return lambda _: (records / timed(broker, topic, records),)


def consume_streams(
    broker: Broker, topic: str, records: int, membership: str = "zookeeper"
) -> float:
    """Consume so many records as the only member of a new group; return the seconds."""
    # Each kind of membership has its own address.
    if membership == "zookeeper":
        address = {"zookeeper.connect": broker.zookeeper}
    else:
        address = {"bootstrap.servers": broker.bootstrap, "membership": membership}
    settings = {
        **address,
        "group.id": f"benchmark-{next(_group_numbers)}",
        "auto.offset.reset": "smallest",
        "fetch.message.max.bytes": FETCH_BYTES,
    }

    async def consume() -> float:
        left = records
        begins = 0.0
        async with ConsumerConnector(settings) as connector:
            streams = await connector.create_message_streams({topic: 1})

            # The clock starts with the first record.
            async for message in streams[topic][0]:
                begins = begins or time.perf_counter()
                left -= bool(message.value)
                if not left:
                    break
            return time.perf_counter() - begins

    return asyncio.run(consume())


def _iterate(broker: Broker, topic: str, records: int) -> float:
    left = records
    begins = 0.0
    consumer = _open_kafka_python(broker, topic)
    for message in consumer:
        begins = begins or time.perf_counter()
        left -= bool(message.value)
        if not left:
            break

    # The last record ends the time, not the end of the consumer.
    ends = time.perf_counter()
    consumer.close()
    return ends - begins


def _consume_by_fetching(
    count_values: Callable[[FetchedPartition], int], broker: Broker, topic: str, records: int
) -> float:
    async def consume() -> float:
        left = records
        begins = 0.0
        offset = 0

        # From offset to offset, without group or commit.
        async with SimpleConsumer(*broker.address) as consumer:
            while left:
                fetched = await consumer.fetch(FetchRequest(topic, 0, offset, FETCH_BYTES))
                begins = begins or time.perf_counter()
                offset = fetched.next_offset
                left -= count_values(fetched)
            return time.perf_counter() - begins

    return asyncio.run(consume())


def _count_records(fetched: FetchedPartition) -> int:
    values = 0
    for record in fetched.records:
        values += bool(record.value)
    return values


def _count_rows(fetched: FetchedPartition) -> int:
    values = 0
    for row in fetched.rows:
        values += bool(row[3])
    return values


def _poll(broker: Broker, topic: str, records: int) -> float:
    left = records
    begins = 0.0
    consumer = _open_kafka_python(broker, topic)
    while left:
        for records_of_partition in consumer.poll(timeout_ms=1000).values():
            begins = begins or time.perf_counter()
            for record in records_of_partition:
                left -= bool(record.value)
    ends = time.perf_counter()
    consumer.close()
    return ends - begins


def _open_kafka_python(broker: Broker, topic: str) -> Any:
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
    )

    # No group: the partition is assigned by hand.
    consumer.assign([KafkaTopicPartition(topic, 0)])
    return consumer


def _our_producer(broker: Broker, topic: str, records: int) -> float:
    async def produce() -> float:
        settings = {"bootstrap.servers": broker.bootstrap, "acks": "1", "batch.size": BATCH_BYTES}
        async with Producer(settings) as producer:
            return await _send(producer, topic, records)

    return asyncio.run(produce())


def _aiokafka_producer(broker: Broker, topic: str, records: int) -> float:
    async def produce() -> float:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, acks=1, max_batch_size=BATCH_BYTES
        )
        await producer.start()
        try:
            return await _send(producer, topic, records)
        finally:
            await producer.stop()

    return asyncio.run(produce())


async def _send(producer: Any, topic: str, records: int) -> float:
    """Send so many records after a first one; return the seconds until all are acknowledged."""
    # The first record opens connections and fetches metadata, before the clock starts.
    await producer.send_and_wait(topic, VALUE)
    begins = time.perf_counter()
    for _ in range(records):
        await producer.send(topic, VALUE)
    await producer.flush()
    return time.perf_counter() - begins


_FETCH_LOOP = partial(_consume_by_fetching, _count_records)
_ROW_LOOP = partial(_consume_by_fetching, _count_rows)
_CONSUMERS: tuple[tuple[str, Wanted, Timed, Timed], ...] = (
    (
        "ConsumerConnector's streams · kafka-python, iterated",
        at_least(1.0),
        consume_streams,
        _iterate,
    ),
    ("SimpleConsumer's fetch · kafka-python, polled", at_least(1.0), _FETCH_LOOP, _poll),
    ("ConsumerConnector's streams · SimpleConsumer's fetch", NEARLY, consume_streams, _FETCH_LOOP),
    ("ConsumerConnector's streams · bare rows of a fetch", NEARLY, consume_streams, _ROW_LOOP),
)
