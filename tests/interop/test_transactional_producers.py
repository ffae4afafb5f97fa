"""Stock transactional producers on a cluster of our brokers alone: coordinator, leaders, groups."""

import asyncio
from typing import Any
from uuid import uuid4

import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from tests.interop.test_committed_readers import read_by_kafka_python, read_by_librdkafka
from tests.interop.traffic import new_topic
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, until_equal


@pytest.fixture
def bootstrap(dev_cluster: DevCluster) -> str:
    return dev_cluster.address("bootstrap")


def committed_offset(bootstrap: str, group_id: str, topic: str) -> int:
    """Return the offset of partition 0, as those ask who wait for open transactions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = ConsumerGroupTopicPartitions(group_id, [confluent_kafka.TopicPartition(topic, 0)])
    futures = admin.list_consumer_group_offsets([asked], require_stable=True)
    (offset,) = futures[group_id].result(DEADLINE_S).topic_partitions
    return int(offset.offset)


def transact_with_librdkafka(bootstrap: str, topic: str, group_id: str) -> list[bytes]:
    """Commit every other transaction, each with an offset; return the values committed."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": group_id}
    )
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group_id})
    producer.init_transactions(DEADLINE_S)
    values = []
    for number in range(1, 7):
        producer.begin_transaction()
        value = b"%d" % number
        producer.produce(topic, value, partition=0)
        offset = confluent_kafka.TopicPartition(topic, 0, number)
        metadata = consumer.consumer_group_metadata()
        producer.send_offsets_to_transaction([offset], metadata, DEADLINE_S)
        if number % 2:
            producer.commit_transaction(DEADLINE_S)
            values.append(value)
        else:
            producer.abort_transaction(DEADLINE_S)
    consumer.close()
    return values


def transact_with_kafka_python(bootstrap: str, topic: str, group_id: str) -> list[bytes]:
    producer: Any = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=group_id)
    producer.init_transactions()
    values = []
    for number in range(1, 7):
        producer.begin_transaction()
        value = b"%d" % number
        producer.send(topic, value, partition=0)
        offset = kafka.OffsetAndMetadata(number, "", -1)
        producer.send_offsets_to_transaction({kafka.TopicPartition(topic, 0): offset}, group_id)
        if number % 2:
            producer.commit_transaction()
            values.append(value)
        else:
            producer.abort_transaction()
    producer.close()
    return values


@pytest.mark.parametrize(
    "transact",
    [transact_with_librdkafka, transact_with_kafka_python],
    ids=["librdkafka", "kafka-python"],
)
def test_what_is_committed_is_read_with_its_offsets_and_nothing_else(
    bootstrap: str, transact: Any
) -> None:
    topic = asyncio.run(new_topic(bootstrap))
    group_id = f"once-{uuid4().hex[:8]}"
    expected = transact(bootstrap, topic, group_id)

    async def scenario() -> None:
        for read in (read_by_librdkafka, read_by_kafka_python):
            await until_equal(lambda read=read: asyncio.to_thread(read, bootstrap, topic), expected)
        await until_equal(
            lambda: asyncio.to_thread(committed_offset, bootstrap, group_id, topic), 5
        )

    asyncio.run(scenario())
