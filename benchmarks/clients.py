"""Compare our Python clients with others on our broker: one partition, records of 100 B.

The peers are the consumers of kafka-python and aiokafka, and the producers of aiokafka and
confluent-kafka, in this process, with the same settings: 1 MB a fetch; 16 KB batches, no linger,
acks=1. A consumer is timed from its first record, so that connecting and joining a group do not
count, and reads every value.

Our streams are also compared with bare loops of ours, which fetch by offset without group, queue or
commit: over SimpleConsumer's records, and over the tuples that records are made of. Our blocking
twins are compared with the clients that they are twins of.
"""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from aiokafka import TopicPartition as AIOKafkaTopicPartition
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer  # type: ignore[import-untyped]
from kafka import TopicPartition as KafkaTopicPartition

from benchmarks.brokers import Broker
from benchmarks.fetch import FETCH_BYTES, fill
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Beside, Row, Wanted, at_least
from clients import blocking
from clients.fetching import FetchedPartition
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer

TOPIC_BYTES = 24 * 1024 * 1024
BATCH_BYTES = 16 * 1024
RECORDS_SENT = 150_000
RECORDS_A_CALL = 1_000
"""Records of one `send_many`; confluent-kafka's producer is polled as often."""
VALUE = b"x" * 100
NEARLY = at_least(0.87)
"""At most 15 % more time."""

Timed = Callable[[Broker, str, int], float]
"""Move so many records; return the seconds."""

_group_numbers = itertools.count()


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield rows of records a second; the second column has the client that is named last."""
    with broker.create_topic() as topic:
        # All consumers read the same records.
        records = fill(broker, topic, TOPIC_BYTES)
        for question, wanted, *pair in _CONSUMERS:
            contestants = [rate(client, broker, topic, records) for client in pair]
            (figures,) = alternate(contestants, rounds)
            yield Row(question, "records/s", wanted, figures, beside=_beside(pair[1]))

    with broker.create_topic() as topic:
        # All producers append to one topic.
        for question, wanted, *pair in _PRODUCERS:
            contestants = [rate(client, broker, topic, RECORDS_SENT) for client in pair]
            (figures,) = alternate(contestants, rounds)
            yield Row(question, "records/s", wanted, figures, beside=_beside(pair[1]))


def _beside(second: Timed) -> Beside:
    """Return what the second of a pair is: a client of another project, or one of ours."""
    return Beside.OURSELVES if second in _OF_OURS else Beside.PEER


def rate(timed: Timed, broker: Broker, topic: str, records: int) -> Contestant:
    """Return a contestant whose figure is records a second."""
    return lambda _: (records / timed(broker, topic, records),)


def consume_streams(
    broker: Broker, topic: str, records: int, membership: str = "zookeeper"
) -> float:
    """Consume so many records as the only member of a new group; return the seconds."""

    async def consume() -> float:
        left = records
        begins = 0.0
        async with ConsumerConnector(_member_of_a_new_group(broker, membership)) as connector:
            streams = await connector.create_message_streams({topic: 1})

            # The clock starts with the first record.
            async for message in streams[topic][0]:
                begins = begins or time.perf_counter()
                left -= bool(message.value)
                if not left:
                    break
            return time.perf_counter() - begins

    return asyncio.run(consume())


def _member_of_a_new_group(broker: Broker, membership: str = "zookeeper") -> dict[str, Any]:
    # Each kind of membership has its own address.
    if membership == "zookeeper":
        address = {"zookeeper.connect": broker.zookeeper}
    else:
        address = {"bootstrap.servers": broker.bootstrap, "membership": membership}

    return {
        **address,
        "group.id": f"benchmark-{next(_group_numbers)}",
        "auto.offset.reset": "smallest",
        "fetch.message.max.bytes": FETCH_BYTES,
    }


def _consume_batches(broker: Broker, topic: str, records: int) -> float:
    async def consume() -> float:
        left = records
        begins = 0.0
        async with ConsumerConnector(_member_of_a_new_group(broker)) as connector:
            streams = await connector.create_message_streams({topic: 1})

            async for messages in streams[topic][0].batches():
                begins = begins or time.perf_counter()
                for message in messages:
                    left -= bool(message.value)
                if not left:
                    break
            return time.perf_counter() - begins

    return asyncio.run(consume())


def _consume_blocking(broker: Broker, topic: str, records: int) -> float:
    left = records
    begins = 0.0
    with blocking.ConsumerConnector(_member_of_a_new_group(broker)) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        for message in stream:
            begins = begins or time.perf_counter()
            left -= bool(message.value)
            if not left:
                break
        return time.perf_counter() - begins


def _iterate_aiokafka(broker: Broker, topic: str, records: int) -> float:
    async def consume() -> float:
        left = records
        begins = 0.0
        consumer = AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=FETCH_BYTES,
        )
        await consumer.start()
        try:
            consumer.assign([AIOKafkaTopicPartition(topic, 0)])
            async for message in consumer:
                begins = begins or time.perf_counter()
                left -= bool(message.value)
                if not left:
                    break
            return time.perf_counter() - begins
        finally:
            await consumer.stop()

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


def _our_settings(broker: Broker) -> dict[str, Any]:
    return {"bootstrap.servers": broker.bootstrap, "acks": "1", "batch.size": BATCH_BYTES}


def _our_producer(broker: Broker, topic: str, records: int) -> float:
    async def produce() -> float:
        async with Producer(_our_settings(broker)) as producer:
            return await _send(producer, topic, records)

    return asyncio.run(produce())


def _send_many(broker: Broker, topic: str, records: int) -> float:
    async def produce() -> float:
        async with Producer(_our_settings(broker)) as producer:
            await producer.send_and_wait(topic, VALUE)
            begins = time.perf_counter()
            for _ in range(records // RECORDS_A_CALL):
                await producer.send_many(topic, [VALUE] * RECORDS_A_CALL)
            await producer.flush()
            return time.perf_counter() - begins

    return asyncio.run(produce())


def _send_blocking(broker: Broker, topic: str, records: int) -> float:
    with blocking.Producer(_our_settings(broker)) as producer:
        producer.send_and_wait(topic, VALUE)
        begins = time.perf_counter()
        for _ in range(records):
            producer.send(topic, VALUE)
        producer.flush()
        return time.perf_counter() - begins


def _confluent_producer(broker: Broker, topic: str, records: int) -> float:
    producer = ConfluentProducer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": 1,
            "batch.size": BATCH_BYTES,
            "linger.ms": 0,
            "queue.buffering.max.messages": 2 * RECORDS_SENT,
        }
    )
    producer.produce(topic, VALUE)
    producer.flush()

    begins = time.perf_counter()
    for number in range(records):
        producer.produce(topic, VALUE)
        if number % RECORDS_A_CALL == 0:
            producer.poll(0)
    producer.flush()
    return time.perf_counter() - begins


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
    (
        "ConsumerConnector's streams · aiokafka, iterated",
        at_least(2.0, compiled=3.0),
        consume_streams,
        _iterate_aiokafka,
    ),
    (
        "ConsumerConnector's batches · aiokafka, iterated",
        at_least(3.0, compiled=5.0),
        _consume_batches,
        _iterate_aiokafka,
    ),
    ("the blocking stream · its original", at_least(0.5), _consume_blocking, consume_streams),
)
_PRODUCERS: tuple[tuple[str, Wanted, Timed, Timed], ...] = (
    (
        "our producer · aiokafka's",
        at_least(1.0, changed="from 0.8 on 2026-11-27: more was in reach"),
        _our_producer,
        _aiokafka_producer,
    ),
    (
        "our send_many · confluent-kafka's producer",
        at_least(0.3, compiled=0.5),
        _send_many,
        _confluent_producer,
    ),
    ("the blocking send · its original", at_least(0.5), _send_blocking, _our_producer),
)
_OF_OURS = (consume_streams, _FETCH_LOOP, _ROW_LOOP, _our_producer)
