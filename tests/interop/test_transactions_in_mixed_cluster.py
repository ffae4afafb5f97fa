"""Transactions that a stock broker coordinates, in partitions that ours leads.

The stock broker has `__transaction_state` to itself. Ours leads the data and `__consumer_offsets`,
takes the markers, is killed, and hands its partitions to the stock broker and back.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import attrs
import confluent_kafka
import kafka  # type: ignore[import-untyped]
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from clients.admin import Admin, NewTopic
from clients.transport.connection import Connection
from protocol.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersRequestTopic,
    DescribeProducersResponse,
)
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import play
from tests.interop.handover import LATEST, OURS
from tests.interop.kafka_cluster import unique
from tests.interop.mixed_cluster import MixedCluster
from tests.stage.waiting import DEADLINE_S, until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import ZkSession

pytestmark = pytest.mark.product

STOCK_ONE, OUR_OWN = 0, 1
STATE_PARTITIONS = 50
"""The number that a stock broker has assumed when it started."""
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)

R = TypeVar("R")


@attrs.define(eq=False)
class Scene:
    """A topic, and a group that commits in transactions; what must be there of both."""

    cluster: MixedCluster
    zk: ZkSession
    topic: str
    partitions: tuple[TopicPartition, ...]
    written: dict[int, list[bytes]]
    """Partition -> the values of transactions that were committed, in order."""
    position: int = 0
    """What the group has committed."""

    def producer(self, transactional_id: str) -> confluent_kafka.Producer:
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 60_000,
        }
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(DEADLINE_S)
        return producer

    def transact(self, producer: confluent_kafka.Producer, *, commits: bool) -> None:
        """Write to each partition, and commit an offset, in one transaction."""
        producer.begin_transaction()
        position = self.position + 1
        values = []
        for partition in self.partitions:
            value = b"%d of %d %s" % (partition.partition, position, b"yes" if commits else b"no")
            producer.produce(self.topic, value, partition=partition.partition)
            values.append(value)

        source = confluent_kafka.TopicPartition(self.topic, 0, position)
        group = confluent_kafka.Consumer(
            {"bootstrap.servers": self.cluster.bootstrap, "group.id": self.topic}
        )
        metadata = group.consumer_group_metadata()
        producer.send_offsets_to_transaction([source], metadata, DEADLINE_S)
        group.close()
        if not commits:
            producer.abort_transaction(DEADLINE_S)
            return
        producer.commit_transaction(DEADLINE_S)
        self.position = position
        for partition, value in zip(self.partitions, values, strict=True):
            self.written[partition.partition].append(value)

    async def transact_often(self, producer: confluent_kafka.Producer) -> None:
        for number in range(6):
            await asyncio.to_thread(self.transact, producer, commits=number % 3 != 1)

    # ---- what readers see

    async def assert_whole(self) -> None:
        """Every reader of committed data has all of it, and the group its offset."""
        for read in (self._read_by_librdkafka, self._read_by_kafka_python):
            await until_equal(lambda read=read: asyncio.to_thread(read), self.written)
        await until_equal(lambda: asyncio.to_thread(self._committed), self.position)

    def _read_by_librdkafka(self) -> dict[int, list[bytes]]:
        settings = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = confluent_kafka.Consumer(settings)
        read: dict[int, list[bytes]] = {p.partition: [] for p in self.partitions}
        ended: set[int] = set()
        try:
            consumer.assign([confluent_kafka.TopicPartition(*p, 0) for p in self.partitions])
            while len(ended) < len(self.partitions):
                message: Any = consumer.poll(DEADLINE_S)
                assert message is not None, "no end of the partitions"
                error = message.error()
                if error is None:
                    read[message.partition()].append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        finally:
            consumer.close()
        return read

    def _read_by_kafka_python(self) -> dict[int, list[bytes]]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap,
            isolation_level="read_committed",
            enable_auto_commit=False,
            consumer_timeout_ms=2000,
        )
        read: dict[int, list[bytes]] = {p.partition: [] for p in self.partitions}
        try:
            consumer.assign([kafka.TopicPartition(*p) for p in self.partitions])
            consumer.seek_to_beginning()
            for record in consumer:
                read[record.partition].append(record.value)
        finally:
            consumer.close()
        return read

    def _committed(self) -> int:
        """Return the offset of the group, as those ask who wait for open transactions."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        source = confluent_kafka.TopicPartition(self.topic, 0)
        asked = ConsumerGroupTopicPartitions(self.topic, [source])
        futures = admin.list_consumer_group_offsets([asked], require_stable=True)
        (offset,) = futures[self.topic].result(DEADLINE_S).topic_partitions
        return int(offset.offset)

    async def open_transactions(self) -> int:
        """Count the transactions that our leader of the first partition has open."""
        connection = await Connection.open("127.0.0.1", self.cluster.ports[OUR_OWN])
        try:
            request = DescribeProducersRequest(
                topics=[DescribeProducersRequestTopic(name=self.topic, partition_indexes=[0])]
            )
            response: DescribeProducersResponse = await connection.call(request)
        finally:
            await connection.close()
        (partition,) = response.topics[0].partitions
        assert partition.error_code == 0
        return sum(p.current_txn_start_offset >= 0 for p in partition.active_producers)

    async def lead(self, broker_id: int) -> None:
        """Have a broker lead the data, and coordinate the group."""
        await self.cluster.lead(self.zk, [*self.partitions, OFFSETS], broker_id)


@pytest.fixture(scope="module")
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    directory = tmp_path_factory.mktemp("mixed")
    makes = {STOCK_ONE: LATEST, OUR_OWN: OURS}
    with MixedCluster.of(makes, f"{zookeeper}/{unique('mixed')}", directory) as cluster:
        yield cluster


@contextlib.asynccontextmanager
async def scene_of(cluster: MixedCluster) -> Any:
    await cluster.start_missing()
    topic = unique("t")
    partitions = (TopicPartition(topic, 0), TopicPartition(topic, 1))
    both = [OUR_OWN, STOCK_ONE]
    internal = {number: [STOCK_ONE] for number in range(STATE_PARTITIONS)}
    async with zookeeper_session(cluster.zookeeper) as zk, Admin(cluster.bootstrap) as admin:
        created = await admin.create_topics(
            [
                NewTopic(topic, assignments={0: both, 1: both}),
                NewTopic(
                    TRANSACTIONS_TOPIC,
                    assignments=internal,
                    configs={"cleanup.policy": "compact"},
                ),
                NewTopic(
                    OFFSETS_TOPIC, assignments={0: both}, configs={"cleanup.policy": "compact"}
                ),
            ]
        )
        assert set(created.values()) == {None}
        yield Scene(cluster, zk, topic, partitions, {0: [], 1: []})


def test_transactions_of_a_stock_coordinator_are_whole_on_our_leader(cluster: MixedCluster) -> None:
    async def scenario() -> None:
        async with scene_of(cluster) as scene:
            await scene.lead(OUR_OWN)
            first = await asyncio.to_thread(scene.producer, "first")
            await scene.transact_often(first)
            await scene.assert_whole()

            # A broker of ours that is killed has them from its disk.
            await cluster.stop(OUR_OWN, killed=True)
            await cluster.start_missing()
            await scene.lead(OUR_OWN)
            await scene.transact_often(first)
            await scene.assert_whole()

            # Another producer of the same id ends what the first has open.
            await asyncio.to_thread(begin, scene, first)
            assert await scene.open_transactions() == 1
            second = await asyncio.to_thread(scene.producer, "first")
            await until_equal(scene.open_transactions, 0)
            assert refused(lambda: first.commit_transaction(DEADLINE_S))
            await scene.transact_often(second)
            await scene.assert_whole()

            # The stock broker has followed ours, and ours follows it.
            for leader in (STOCK_ONE, OUR_OWN):
                await scene.lead(leader)
                await scene.transact_often(second)
                await scene.assert_whole()

    play(scenario())


def begin(scene: Scene, producer: confluent_kafka.Producer) -> None:
    """Leave a transaction open."""
    producer.begin_transaction()
    producer.produce(scene.topic, b"never", partition=0)
    producer.flush(DEADLINE_S)


def refused(transact: Callable[[], R]) -> bool:
    """Return whether a producer is told that another one has its place."""
    with pytest.raises(KafkaException) as failed:
        transact()
    error: KafkaError = failed.value.args[0]
    assert error.fatal(), error
    return True
