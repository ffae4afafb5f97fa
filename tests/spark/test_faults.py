"""Damage, loss and brokers that go away, under queries of a real Spark."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from clients import blocking
from clients.admin import NewTopic
from tests.spark.damaged_log import damage_batch
from tests.spark.streaming import run_to_its_end, until_running_query
from tests.spark.topic import Topic, create_topic
from tests.stage.cluster import DevCluster
from tests.stage.waiting import DEADLINE_S, block_until


@pytest.fixture
def topic(spark: SparkSession, dev_cluster: DevCluster, tmp_path: Path) -> Topic:
    return create_topic(spark, dev_cluster.address("bootstrap"), tmp_path)


def test_a_damaged_batch_fails_the_query_or_is_left_out(
    topic: Topic, dev_cluster: DevCluster
) -> None:
    for first in (0, 20, 40):
        topic.produce(range(first, first + 20))
    damage_batch(dev_cluster, topic.name, 1)

    text = rf"{topic.name}-0: the batch with offsets 10 to 19 cannot be read.*kgroup.corrupt=skip"
    with pytest.raises(PySparkException, match=text):
        topic.table().collect()

    # The even ones from 20 to 38 were in it.
    left = [n for n in range(60) if n % 2 or not 20 <= n < 40]
    rows = topic.table(**{"kgroup.corrupt": "skip"}).collect()
    assert sorted(int(row.value) for row in rows) == left

    # A stream that failed goes on from its checkpoint.
    seen: list[int] = []
    with pytest.raises(Exception, match=text):
        run_to_its_end(
            topic.writer(seen.extend, {"availableNow": True}, startingOffsets="earliest")
        )
    topic.run_available(seen.extend, startingOffsets="earliest", **{"kgroup.corrupt": "skip"})
    assert sorted(seen) == left


def test_a_record_above_the_fetch_size_is_read(topic: Topic) -> None:
    values = [b"small", b"x" * 100_000, b"behind"]
    with blocking.Producer({"bootstrap.servers": topic.bootstrap, "batch.size": 500}) as producer:
        for value in values:
            producer.send(topic.name, value, partition=0)
    rows = topic.table(**{"kafka.max.partition.fetch.bytes": "1000"}).orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == values


@pytest.mark.product
def test_a_task_writes_and_another_reads_a_million_rows(topic: Topic) -> None:
    rows = topic.spark.range(0, 1_000_000, 1, 1).selectExpr(
        "cast(id as string) value", "0 partition"
    )
    sink = rows.write.format("kgroup").mode("append").option("topic", topic.name)
    sink.option("kafka.bootstrap.servers", topic.bootstrap).save()

    table = topic.table(columns="value")
    assert table.rdd.getNumPartitions() == 1
    numbers = table.selectExpr("count(*) n", "sum(cast(cast(value as string) as long)) total")
    assert numbers.collect() == [(1_000_000, 499_999_500_000)]


# ---- what is no longer there


def delete_records(topic: Topic, before: int) -> None:
    """Delete the records of partition 0 before an offset, as retention does."""
    admin = AdminClient({"bootstrap.servers": topic.bootstrap})
    (deleted,) = admin.delete_records([Place(topic.name, 0, before)]).values()
    deleted.result(DEADLINE_S)


def test_a_checkpoint_older_than_retention_fails_or_loses_only_what_is_deleted(
    topic: Topic,
) -> None:
    seen: list[int] = []
    topic.produce(range(40))
    topic.run_available(seen.extend, startingOffsets="earliest")
    topic.produce(range(40, 100))
    delete_records(topic, before=30)

    text = rf"{topic.name}-0: offsets 20 to 29 have been deleted.*set failOnDataLoss to false"
    with pytest.raises(Exception, match=text):
        run_to_its_end(topic.writer(seen.extend, {"availableNow": True}))
    topic.run_available(seen.extend, failOnDataLoss="false")

    # The even ones from 40 to 58 were deleted.
    assert sorted(seen) == [n for n in range(100) if n % 2 or not 40 <= n < 60]


def test_a_query_whose_checkpoint_is_lost_goes_on_where_its_group_is(
    topic: Topic, tmp_path: Path
) -> None:
    seen: list[int] = []
    topic.produce(range(40))
    topic.run_available(seen.extend, startingOffsets="earliest")
    topic.produce(range(40, 60))
    topic.checkpoint = tmp_path / "another"
    topic.run_available(seen.extend, startingOffsets="group")
    assert sorted(seen) == list(range(60))


def test_a_group_that_is_deleted_comes_back_with_the_next_batch(topic: Topic) -> None:
    def delete_group() -> None:
        with blocking.Admin(topic.bootstrap) as admin:
            assert admin.delete_groups([topic.group]) == {topic.group: None}

    seen: list[int] = []
    topic.produce(range(20))
    query = topic.run(seen.extend, startingOffsets="earliest")
    try:
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the first records")
        delete_group()
        topic.produce(range(20, 40))
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the group's return")
    finally:
        query.stop()

    # While the query is stopped, its checkpoint knows the place.
    delete_group()
    topic.produce(range(40, 60))
    topic.run_available(seen.extend, startingOffsets="earliest")
    assert topic.lag() == {0: 0, 1: 0}
    assert sorted(seen) == list(range(60))


# ---- what goes away for a while


@pytest.fixture(scope="module")
def mortal_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    """A cluster whose processes are stopped and killed."""
    with DevCluster(tmp_path_factory.mktemp("mortal")) as cluster:
        yield cluster


@pytest.fixture
def mortal_topic(spark: SparkSession, mortal_cluster: DevCluster, tmp_path: Path) -> Topic:
    return create_topic(spark, mortal_cluster.address("bootstrap"), tmp_path)


def live_through(topic: Topic, outage: Callable[[Callable[[], None]], None]) -> None:
    """Run a query through an outage; it must live, and read each record once.

    `outage` gets a function that fails if the query has ended.
    """
    seen: list[int] = []
    topic.produce(range(20))
    query = topic.run(seen.extend, startingOffsets="earliest")

    def check() -> None:
        assert query.isActive, query.exception()

    try:
        until_running_query(query, lambda: len(seen) == 20, "the first records")
        outage(check)
        topic.produce(range(20, 40))
        until_running_query(query, lambda: len(seen) >= 40, "the records after the outage")
    finally:
        query.stop()
    assert sorted(seen) == list(range(40))


def freeze(pid: int, check: Callable[[], None], for_s: float) -> None:
    """Stop a process for a while, and look at the query meanwhile."""
    ends_s = time.monotonic() + for_s

    def is_over() -> bool:
        check()
        return time.monotonic() >= ends_s

    os.kill(pid, signal.SIGSTOP)
    try:
        block_until(is_over, "the end of the outage", for_s + DEADLINE_S)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    "for_s",
    [
        8,
        pytest.param(30, marks=pytest.mark.product),
        pytest.param(70, marks=pytest.mark.product),
        pytest.param(150, marks=pytest.mark.product),
    ],
)
def test_a_query_lives_while_all_brokers_are_frozen(
    mortal_topic: Topic, mortal_cluster: DevCluster, for_s: float
) -> None:
    pid = mortal_cluster.pid("broker-0")
    live_through(mortal_topic, lambda check: freeze(pid, check, for_s))


@pytest.mark.parametrize("for_s", [5, pytest.param(30, marks=pytest.mark.product)])
def test_a_query_lives_while_zookeeper_is_frozen(
    mortal_topic: Topic, mortal_cluster: DevCluster, for_s: float
) -> None:
    pid = mortal_cluster.pid("zookeeper")
    live_through(mortal_topic, lambda check: freeze(pid, check, for_s))


@pytest.mark.product
def test_a_query_lives_while_its_broker_is_killed_and_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with DevCluster(tmp_path / "dev") as cluster:
        topic = create_topic(spark, cluster.address("bootstrap"), tmp_path)
        seen: list[int] = []
        topic.produce(range(20))
        query = topic.run(seen.extend, startingOffsets="earliest")
        try:
            until_running_query(query, lambda: len(seen) == 20, "the first records")
            cluster.kill("broker-0")
            with cluster.started_again():
                topic.produce(range(20, 40))
                until_running_query(query, lambda: len(seen) >= 40, "the records after the kill")
                query.stop()
        finally:
            query.stop()
    assert sorted(seen) == list(range(40))


def test_a_query_reads_on_when_a_leader_moves_and_where_a_partition_has_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    with DevCluster(tmp_path / "dev", ("--brokers", "2")) as cluster:
        moved = Topic(spark, cluster.address("bootstrap"), tmp_path / "checkpoint")
        alone = Topic(spark, moved.bootstrap, tmp_path / "none")
        with blocking.Admin(moved.bootstrap) as admin:
            admin.create_topics(
                [
                    NewTopic(moved.name, assignments={0: [1, 0], 1: [1, 0]}),
                    NewTopic(alone.name, assignments={0: [0], 1: [1]}),
                ]
            )

        seen: list[int] = []
        moved.produce(range(20))
        alone.produce(range(20, 40))
        both = f"{moved.name},{alone.name}"
        query = moved.run(seen.extend, startingOffsets="earliest", subscribe=both)
        try:
            until_running_query(query, lambda: len(seen) == 40, "the first records")

            # The other broker leads what it has too; partition 1 of the other topic has no leader.
            cluster.kill("broker-1")
            moved.produce(range(40, 60))
            alone.produce(range(60, 80, 2))
            until_running_query(query, lambda: len(seen) >= 70, "the records of other partitions")

            # A batch query cannot know where such a partition begins.
            with pytest.raises(PySparkException, match=f"{alone.name}-1: "):
                alone.table(**{"kafka.default.api.timeout.ms": "3000"}).collect()

            with cluster.started_again(1):
                alone.produce(range(61, 81, 2))
                until_running_query(query, lambda: len(seen) >= 80, "the last records")
                query.stop()
        finally:
            query.stop()
    assert sorted(seen) == list(range(80))
