"""The clients and our broker together, over real sockets and files."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

import pytest

from clients import blocking
from clients.admin import EARLIEST_TIME, LATEST_TIME, Admin, NewTopic
from clients.producer.producer import Producer
from clients.simple_consumer import FetchRequest, SimpleConsumer
from protocol.errors import ErrorCode
from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster


def with_topic(
    cluster: DevCluster,
    scenario: Callable[[Admin, str], Awaitable[Any]],
    partitions: int = 1,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Run a scenario with a new topic of one replica."""
    topic = f"t-{uuid4().hex[:8]}"

    async def run() -> None:
        async with Admin(cluster.address("bootstrap")) as admin:
            new = NewTopic(topic, partitions, 1, configs or {})
            assert await admin.create_topics([new]) == {topic: None}
            await scenario(admin, topic)

    asyncio.run(asyncio.wait_for(run(), 60))


async def read_all(
    cluster: DevCluster, admin: Admin, partition: TopicPartition, max_size: int
) -> list[Record]:
    end = (await admin.list_offsets({partition: LATEST_TIME}))[partition].offset
    records: list[Record] = []
    settings = {"bootstrap.servers": cluster.address("bootstrap")}
    async with await SimpleConsumer.for_leader(settings, *partition) as consumer:
        offset = 0
        while offset < end:
            fetched = await consumer.fetch(FetchRequest(*partition, offset, max_size))
            records += fetched
            assert fetched.next_offset > offset
            offset = fetched.next_offset
    return records


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_fetched_whatever_the_codec(
    dev_cluster: DevCluster, codec: str
) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        settings = {
            "bootstrap.servers": dev_cluster.address("bootstrap"),
            "compression.type": codec,
        }
        async with Producer(settings, acks="all", batch_size=2000) as producer:
            for n in range(500):
                value = b"v%d" % n if n % 7 else None
                await producer.send(topic, value, key=b"k%d" % n, timestamp_ms=1000 + n)
        records = await read_all(dev_cluster, admin, TopicPartition(topic, 0), 3000)
        assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in records] == [
            (n, 1000 + n, b"k%d" % n, b"v%d" % n if n % 7 else None) for n in range(500)
        ]

    with_topic(dev_cluster, scenario)


def test_keys_of_many_partitions_keep_their_order(dev_cluster: DevCluster) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        async with Producer(
            bootstrap_servers=dev_cluster.address("bootstrap"), batch_size=500
        ) as producer:
            for n in range(1000):
                await producer.send(topic, b"%d" % n, key=b"%d" % (n % 20))
        by_key: dict[bytes | None, list[int]] = {}
        for index in range(5):
            for record in await read_all(dev_cluster, admin, TopicPartition(topic, index), 1 << 20):
                by_key.setdefault(record.key, []).append(int(record.value or b""))
        assert by_key == {b"%d" % k: list(range(k, 1000, 20)) for k in range(20)}

    with_topic(dev_cluster, scenario, partitions=5)


def test_batches_over_the_topics_limit_arrive_in_parts(dev_cluster: DevCluster) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        async with Producer(
            bootstrap_servers=dev_cluster.address("bootstrap"), linger_ms=50
        ) as producer:
            sent = [await producer.send(topic, b"%03d" % n * 30) for n in range(100)]
            offsets = [metadata.offset for metadata in await asyncio.gather(*sent)]
        assert offsets == list(range(100))

    with_topic(dev_cluster, scenario, configs={"max.message.bytes": "1000"})


def test_offsets_are_found_by_time_and_at_both_ends(dev_cluster: DevCluster) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        partition = TopicPartition(topic, 0)
        async with Producer(bootstrap_servers=dev_cluster.address("bootstrap")) as producer:
            for n in range(3):
                await producer.send_and_wait(topic, b"", timestamp_ms=1000 * (n + 1))

        async def at(time: int) -> tuple[int, int]:
            listed = (await admin.list_offsets({partition: time}))[partition]
            return listed.offset, listed.timestamp_ms

        assert await at(EARLIEST_TIME) == (0, -1)
        assert await at(LATEST_TIME) == (3, -1)
        assert await at(1001) == (1, 2000)
        assert await at(9999) == (-1, -1)

    with_topic(dev_cluster, scenario)


def test_offsets_committed_for_a_group_are_fetched_by_both_clients(dev_cluster: DevCluster) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        partition = TopicPartition(topic, 0)
        group = f"g-{topic}"
        await admin.commit_group_offsets(group, {partition: OffsetAndMetadata(7, "note")})
        assert await admin.group_offsets(group) == {partition: OffsetAndMetadata(7, "note")}
        assert group in [listing.group_id for listing in await admin.list_groups()]
        coordinator = (await admin.describe_groups([group]))[group].coordinator
        async with SimpleConsumer(coordinator.host, coordinator.port, 10_000, -1, "c") as consumer:
            assert await consumer.commit_offsets(group, {partition: 9}) == {
                partition: ErrorCode.NONE
            }
            assert (await consumer.fetch_offsets(group, [partition]))[partition].offset == 9

    with_topic(dev_cluster, scenario)


def test_fetch_at_the_end_waits_for_the_next_record(dev_cluster: DevCluster) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        settings = {"bootstrap.servers": dev_cluster.address("bootstrap")}
        async with await SimpleConsumer.for_leader(settings, topic, 0) as consumer:
            request = FetchRequest(topic, 0, 0)
            waiting = asyncio.create_task(consumer.fetch(request, max_wait_ms=10_000, min_bytes=1))
            async with Producer(settings) as producer:
                await producer.send_and_wait(topic, b"late")
            assert [record.value for record in await waiting] == [b"late"]

    with_topic(dev_cluster, scenario)


def test_fetch_beyond_the_end_is_out_of_range(dev_cluster: DevCluster) -> None:
    async def scenario(admin: Admin, topic: str) -> None:
        settings = {"bootstrap.servers": dev_cluster.address("bootstrap")}
        async with await SimpleConsumer.for_leader(settings, topic, 0) as consumer:
            fetched = await consumer.fetch(FetchRequest(topic, 0, 5))
            assert fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE

    with_topic(dev_cluster, scenario)


def test_blocking_twins_do_the_same(dev_cluster: DevCluster) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    settings = {"bootstrap.servers": dev_cluster.address("bootstrap")}
    with blocking.Admin(settings) as admin:
        assert admin.create_topics([NewTopic(topic, 1, 1)]) == {topic: None}
    with blocking.Producer(settings, linger_ms=5) as producer:
        sent = [producer.send(topic, b"%d" % n) for n in range(50)]
        producer.flush()
        assert [future.result(timeout=10).offset for future in sent] == list(range(50))
    with blocking.SimpleConsumer.for_leader(settings, topic, 0) as consumer:
        fetched = consumer.fetch(FetchRequest(topic, 0, 0))
        assert [record.value for record in fetched] == [b"%d" % n for n in range(50)]
