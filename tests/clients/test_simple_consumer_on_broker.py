"""The simple consumer and our broker."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from uuid import uuid4

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from clients.simple_consumer import EARLIEST_TIME, LATEST_TIME, FetchRequest, SimpleConsumer
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S
from zk.znodes import ConsumerOffset


@asynccontextmanager
async def consumer_of(
    cluster: DevCluster, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[SimpleConsumer, Producer, str]]:
    """Yield a new topic, a producer, and a consumer of the leader of its partition 0."""
    topic = f"t-{uuid4().hex[:8]}"
    settings = {"bootstrap.servers": cluster.address("bootstrap")}
    async with Admin(settings) as admin:
        results = await admin.create_topics([NewTopic(topic, partitions, 1, configs or {})])
        assert results == {topic: None}
    async with (
        Producer(settings) as producer,
        await SimpleConsumer.for_leader(settings, topic, 0) as consumer,
    ):
        yield consumer, producer, topic


async def test_offsets_before_a_time_are_where_segments_begin_newest_first_and_bounded(
    dev_cluster: DevCluster,
) -> None:
    configs = {"segment.bytes": "1000"}
    async with consumer_of(dev_cluster, 1, configs) as (consumer, producer, topic):
        for _ in range(20):
            await producer.send_and_wait(topic, b"x" * 250)
        before = consumer.get_offsets_before
        offsets = await before(topic, 0, LATEST_TIME, 10)
        assert offsets[0] == 20
        assert offsets == sorted(offsets, reverse=True)
        assert len(offsets) > 4
        assert await before(topic, 0, LATEST_TIME, 3) == offsets[:3]
        assert await before(topic, 0, EARLIEST_TIME, 10) == [0]
        assert await before(topic, 0, 1, 10) == []


async def test_earliest_and_latest_offsets_are_the_ends_of_the_log(dev_cluster: DevCluster) -> None:
    async with consumer_of(dev_cluster) as (consumer, producer, topic):
        at = consumer.earliest_or_latest_offset
        assert (await at(topic, 0, EARLIEST_TIME), await at(topic, 0, LATEST_TIME)) == (0, 0)
        await producer.send_and_wait(topic, b"a")
        assert (await at(topic, 0, EARLIEST_TIME), await at(topic, 0, LATEST_TIME)) == (0, 1)


async def test_multifetch_answers_each_partition_by_itself(dev_cluster: DevCluster) -> None:
    async with consumer_of(dev_cluster, partitions=3) as (consumer, producer, topic):
        for partition in (0, 2):
            await producer.send_and_wait(topic, b"%d" % partition, partition=partition)
        asked = [
            FetchRequest(topic, 2, 0),
            FetchRequest(topic, 0, 5),
            FetchRequest(topic, 1, 0),
            FetchRequest(topic, 9, 0),
            FetchRequest(topic, 0, 0),
        ]
        fetched = await consumer.multifetch(asked)
        assert [part.error for part in fetched] == [
            ErrorCode.NONE,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NONE,
        ]
        values = [[record.value for record in part.records] for part in fetched]
        assert values == [[b"2"], [], [], [], [b"0"]]


async def test_offset_of_version_0_is_kept_in_zookeeper_and_read_from_there(
    dev_cluster: DevCluster,
) -> None:
    async with consumer_of(dev_cluster) as (consumer, _, topic):
        group = f"g-{topic}"
        partition = TopicPartition(topic, 0)
        results = await consumer.commit_offsets(group, {partition: 7}, version=0)
        assert results == {partition: ErrorCode.NONE}
        async with dev_cluster.zookeeper_session() as zk:
            content, _ = await zk.get(ConsumerOffset.path(group, topic, 0))
        assert content == b"7"
        found = await consumer.fetch_offsets(group, [partition], version=0)
        assert (found[partition].offset, found[partition].error) == (7, ErrorCode.NONE)


async def test_offset_of_a_later_version_is_kept_by_the_coordinator(
    dev_cluster: DevCluster,
) -> None:
    async with consumer_of(dev_cluster) as (consumer, _, topic):
        group = f"g-{topic}"
        partition = TopicPartition(topic, 0)
        await coordinated(consumer, group)
        offsets = {partition: OffsetAndMetadata(7, "note")}
        assert await consumer.commit_offsets(group, offsets) == {partition: ErrorCode.NONE}
        found = (await consumer.fetch_offsets(group, [partition]))[partition]
        assert (found.offset, found.metadata) == (7, "note")
        in_zookeeper = await consumer.fetch_offsets(group, [partition], version=0)
        assert in_zookeeper[partition].offset == -1


async def coordinated(consumer: SimpleConsumer, group: str) -> None:
    """Wait for the coordinator: the offsets topic is created by the first question."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(ApiError):
                await consumer.find_coordinator(group)
                return
            await asyncio.sleep(0.05)
