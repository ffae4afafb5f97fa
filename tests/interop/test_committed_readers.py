"""Stock consumers of committed data, with a test in the place of the coordinator of transactions.

It sends what a producer and its coordinator would: batches, offsets, and the markers.
"""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest
from confluent_kafka import KafkaError

from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from offsets.topic import partition_for
from protocol.errors import ErrorCode
from protocol.internal_topics import OFFSETS_TOPIC
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from protocol.topic_partition import TopicPartition
from tests.broker.transactions import (
    commit_codes,
    commit_request,
    in_transaction,
    marker,
    marker_codes,
    produce_request,
)
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, until_equal

Read = Callable[[str, str], list[bytes]]


def read_by_librdkafka(bootstrap: str, topic: str) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    read: list[bytes] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while True:
            message: Any = consumer.poll(DEADLINE_S)
            assert message is not None, "no end of the partition"
            if message.error() is None:
                read.append(message.value())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return read
    finally:
        consumer.close()


def read_by_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        enable_auto_commit=False,
        consumer_timeout_ms=1000,
    )
    try:
        consumer.assign([kafka.TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        return [record.value for record in consumer]
    finally:
        consumer.close()


READERS = [read_by_librdkafka, read_by_kafka_python]


class Coordinator:
    """A producer and its coordinator, over one connection to the broker."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self.connection = connection
        self.topic = topic
        self.partition = TopicPartition(topic, 0)
        self.producer_id = -1
        self.sequence = 0

    async def begin(self) -> None:
        response: Any = await self.connection.call(InitProducerIdRequest())
        self.producer_id = response.producer_id
        self.sequence = 0

    async def send(self, *values: bytes, epoch: int = 0) -> ErrorCode:
        records = in_transaction(
            *values, producer_id=self.producer_id, epoch=epoch, sequence=self.sequence
        )
        response: Any = await self.connection.call(produce_request(records, self.topic))
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequence += len(values)
        return code

    async def end(
        self, *partitions: TopicPartition, commits: bool, epoch: int = 0
    ) -> list[ErrorCode]:
        request = WriteTxnMarkersRequest(
            markers=[
                marker(
                    *(partitions or (self.partition,)),
                    commits=commits,
                    producer_id=self.producer_id,
                    epoch=epoch,
                )
            ]
        )
        return marker_codes(await self.connection.call(request))


@pytest.fixture
def bootstrap(dev_cluster: DevCluster) -> str:
    return dev_cluster.address("bootstrap")


async def coordinator(bootstrap: str) -> Coordinator:
    topic = f"committed-{uuid4().hex[:8]}"
    # Many segments, so that transactions cross their ends.
    settings = {"segment.bytes": "1000", "index.interval.bytes": "100"}
    async with Admin(bootstrap) as admin:
        created = await admin.create_topics([NewTopic(topic, 1, 1, settings)])
        assert created == {topic: None}
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    connection = await Connection.open(host, int(port))
    made = Coordinator(connection, topic)

    async def has_leader() -> bool:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        response: Any = await connection.call(request)
        return bool(response.topics[0].partitions[0].leader_id >= 0)

    await until_equal(has_leader, True)
    await made.begin()
    return made


@pytest.mark.parametrize("read", READERS, ids=["librdkafka", "kafka-python"])
def test_readers_of_committed_data_see_whole_transactions_or_nothing(
    bootstrap: str, read: Read
) -> None:
    async def scenario() -> None:
        first, second = [await coordinator(bootstrap) for _ in range(2)]
        second.topic, second.partition = first.topic, first.partition
        expected = []
        # Of two producers that write by turns one commits and the other aborts.
        for number in range(10):
            for part in range(3):
                assert not await first.send(b"a%d.%d" % (number, part) + b"." * 100)
                assert not await second.send(b"b%d.%d" % (number, part) + b"." * 100)
            kept = number % 2 == 0
            assert await first.end(commits=kept) == [ErrorCode.NONE]
            assert await second.end(commits=not kept) == [ErrorCode.NONE]
            name = b"a" if kept else b"b"
            expected += [name + b"%d.%d" % (number, part) for part in range(3)]

        # One is open, and one begins behind it.
        await first.send(b"open")
        await second.send(b"behind")
        await second.end(commits=True)

        def values() -> list[bytes]:
            return [value.rstrip(b".") for value in read(bootstrap, first.topic)]

        await until_equal(lambda: asyncio.to_thread(values), expected)
        # The time-out of a coordinator aborts it, and fences its producer.
        assert await first.end(commits=False, epoch=1) == [ErrorCode.NONE]
        await until_equal(lambda: asyncio.to_thread(values), [*expected, b"behind"])
        assert await first.send(b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        await first.connection.close()
        await second.connection.close()

    asyncio.run(scenario())


def test_a_group_has_the_offsets_of_transactions_that_were_committed(bootstrap: str) -> None:
    async def scenario() -> None:
        producer = await coordinator(bootstrap)
        connection, group_id = producer.connection, producer.topic

        async def has_coordinator() -> ErrorCode:
            response: Any = await connection.call(FindCoordinatorRequest(key=group_id))
            return ErrorCode.of(response.error_code)

        await until_equal(has_coordinator, ErrorCode.NONE)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=OFFSETS_TOPIC)])
        metadata: Any = await connection.call(request)
        partitions = len(metadata.topics[0].partitions)
        offsets = TopicPartition(OFFSETS_TOPIC, partition_for(group_id, partitions))

        async def commit(offset: int) -> None:
            commit = commit_request(
                (producer.topic, 0, offset), group_id=group_id, producer_id=producer.producer_id
            )

            async def codes() -> list[ErrorCode]:
                return list(commit_codes(await connection.call(commit)))

            await until_equal(codes, [ErrorCode.NONE])

        async def offset() -> tuple[int, ErrorCode]:
            asked = OffsetFetchRequestTopic(name=producer.topic, partition_indexes=[0])
            request = OffsetFetchRequest(group_id=group_id, topics=[asked], require_stable=True)
            response: Any = await connection.call(request, version=7)
            (partition,) = response.topics[0].partitions
            return partition.committed_offset, ErrorCode.of(partition.error_code)

        await commit(1)
        await commit(2)
        assert await offset() == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        assert await producer.end(offsets, commits=True) == [ErrorCode.NONE]
        assert await offset() == (2, ErrorCode.NONE)
        await commit(3)
        assert await producer.end(offsets, commits=False) == [ErrorCode.NONE]
        assert await offset() == (2, ErrorCode.NONE)
        await connection.close()

    asyncio.run(scenario())
