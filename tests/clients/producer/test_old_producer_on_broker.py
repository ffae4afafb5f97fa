"""The producer with `producer.type` and our broker: the log has the messages, in place."""

import asyncio
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest

from clients import blocking
from clients.admin import Admin, NewTopic
from clients.errors import FailedToSendMessage
from clients.producer.old_partitioner import hash_partition
from clients.producer.producer import Producer, ProducerData
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.records.batch import Record
from tests.stage.cluster import DevCluster


async def new_topic(
    cluster: DevCluster, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> str:
    topic = f"t-{uuid4().hex[:8]}"
    async with Admin(cluster.address("bootstrap")) as admin:
        results = await admin.create_topics([NewTopic(topic, partitions, 1, configs or {})])
        assert results == {topic: None}
    return topic


async def read_records(cluster: DevCluster, topic: str, partition: int = 0) -> list[Record]:
    settings = {"bootstrap.servers": cluster.address("bootstrap")}
    async with await SimpleConsumer.for_leader(settings, topic, partition) as consumer:
        return (await consumer.fetch(FetchRequest(topic, partition, 0))).records


def producer(cluster: DevCluster, kind: str, **settings: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": cluster.address("bootstrap"), "producer.type": kind}, **settings
    )


async def test_sync_messages_are_acknowledged_with_the_offsets_they_have(
    dev_cluster: DevCluster,
) -> None:
    topic = await new_topic(dev_cluster)
    async with producer(dev_cluster, "sync", request_required_acks=-1) as sync:
        sent = await sync.send(ProducerData(topic, b"k", [b"a", b"b", None])) or []
    assert [metadata.offset for metadata in sent] == [0, 1, 2]
    records = await read_records(dev_cluster, topic)
    assert [(r.offset, r.key, r.value) for r in records] == [
        (0, b"k", b"a"),
        (1, b"k", b"b"),
        (2, b"k", None),
    ]


async def test_first_message_of_a_topic_that_does_not_exist_makes_it(
    dev_cluster: DevCluster,
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    async with producer(dev_cluster, "sync") as sync:
        await sync.send(ProducerData(topic, None, b"first"))
    assert [record.value for record in await read_records(dev_cluster, topic)] == [b"first"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
async def test_async_messages_lie_by_their_java_hash_in_order_once_closed(
    dev_cluster: DevCluster, codec: str
) -> None:
    topic = await new_topic(dev_cluster, partitions=3)
    settings = {"compression_codec": codec, "batch_size": 70, "queue_time": 100}
    encoder = {"serializer.class": "kafka.serializer.StringEncoder"}
    async with producer(dev_cluster, "async", **settings, **encoder) as queued:
        for n in range(500):
            await queued.send(ProducerData(topic, f"key-{n % 9}", f"{n}"))
    for partition in range(3):
        expected = [b"%d" % n for n in range(500) if hash_partition(f"key-{n % 9}", 3) == partition]
        records = await read_records(dev_cluster, topic, partition)
        assert [record.value for record in records] == expected


async def test_brokers_are_found_through_zookeeper_alone(dev_cluster: DevCluster) -> None:
    topic = await new_topic(dev_cluster)
    zookeeper = {"zookeeper.connect": dev_cluster.address("zookeeper")}
    async with Producer({**zookeeper, "producer.type": "sync"}) as sync:
        await sync.send(ProducerData(topic, None, b"a"))
    async with Producer(zookeeper) as plain:
        await plain.send_and_wait(topic, b"b")
    async with await SimpleConsumer.for_leader(zookeeper, topic, 0) as consumer:
        fetched = await consumer.fetch(FetchRequest(topic, 0, 0))
        assert [record.value for record in fetched] == [b"a", b"b"]


async def test_zookeeper_helps_when_no_bootstrap_address_answers(dev_cluster: DevCluster) -> None:
    topic = await new_topic(dev_cluster)
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "zookeeper.connect": dev_cluster.address("zookeeper"),
    }
    async with Producer(settings) as plain:
        assert (await plain.send_and_wait(topic, b"a")).offset == 0


async def test_messages_that_are_too_large_together_are_stored_and_one_that_is_alone_is_named(
    dev_cluster: DevCluster,
) -> None:
    topic = await new_topic(dev_cluster, configs={"max.message.bytes": "5000"})
    async with producer(dev_cluster, "sync") as sync:
        values = [b"%d" % n * 1000 for n in range(10)]
        await sync.send(ProducerData(topic, None, values))
        with pytest.raises(FailedToSendMessage, match="MESSAGE_TOO_LARGE") as failed:
            await sync.send(ProducerData(topic, None, [b"x" * 6000, b"small"]))
    assert [len(message.message) for message in failed.value.messages] == [6000]
    values_in_log = [record.value for record in await read_records(dev_cluster, topic)]
    assert values_in_log == [*values, b"small"]


def test_blocking_twin_does_the_same(dev_cluster: DevCluster) -> None:
    topic = asyncio.run(new_topic(dev_cluster))
    settings = {"bootstrap.servers": dev_cluster.address("bootstrap")}
    with blocking.Producer({**settings, "producer.type": "sync"}) as sync:
        (metadata,) = sync.send(ProducerData(topic, None, b"a"))
        assert metadata.offset == 0
    with blocking.Producer({**settings, "producer.type": "async"}) as queued:
        assert queued.send(ProducerData(topic, None, [b"b", b"c"])) is None
    values = [record.value for record in asyncio.run(read_records(dev_cluster, topic))]
    assert values == [b"a", b"b", b"c"]
