"""The listeners that `install` adds, in a real Spark, on a real broker."""

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import attrs
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from clients import blocking
from clients.admin import NewTopic
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.install import install
from spark_connector.query_listener import KgroupQueryListener
from spark_connector.source import KgroupDataSource, KgroupDataSourceWithListener
from tests.spark.streaming import DEADLINE_S, run_to_its_end, start, until_running_query
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT
from tests.stage.waiting import block_until

THREE_OF_FOUR = {"maxOffsetsPerTrigger": "30", "startingOffsets": "earliest"}


@attrs.define(eq=False)
class Topic:
    """A topic of two partitions and a group for one test."""

    spark: SparkSession
    listener: KgroupQueryListener
    bootstrap: str
    directory: Path
    name: str = attrs.field(factory=lambda: f"t-{uuid4().hex[:8]}")
    group: str = attrs.field(default=attrs.Factory(lambda self: f"g-{self.name}", takes_self=True))

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, n) for n in range(2)]

    def produce(self, counts: tuple[int, int]) -> None:
        with blocking.Producer({"bootstrap.servers": self.bootstrap}) as producer:
            for partition, count in enumerate(counts):
                for _ in range(count):
                    producer.send(self.name, b"v", partition=partition, timestamp_ms=1_000)
            producer.flush()

    def options(self, **options: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": self.name,
            "commit.group.id": self.group,
            **options,
        }

    def writer(self, **options: str) -> DataStreamWriter:
        stream = self.spark.readStream.format("kgroup").options(**self.options(**options)).load()
        writer = stream.writeStream.format("noop").queryName(f"q-{self.name}")
        return writer.option("checkpointLocation", str(self.directory / "checkpoint"))

    def table(self, **options: str) -> DataFrame:
        return self.spark.read.format("kgroup").options(**self.options(**options)).load()

    def committed(self) -> dict[int, OffsetAndMetadata]:
        with blocking.Admin(self.bootstrap) as admin:
            committed = admin.group_offsets(self.group, self.partitions)
        return {p.partition: place for p, place in committed.items()}

    def places(self) -> dict[int, int]:
        return {partition: place.offset for partition, place in self.committed().items()}

    def until_at(self, places: dict[int, int]) -> None:
        block_until(lambda: self.places() == places, f"the group at {places}", DEADLINE_S)


@pytest.fixture(scope="module")
def listener(spark: SparkSession) -> KgroupQueryListener:
    listener = install(spark, time_lag=True)
    assert listener is not None
    return listener


@pytest.fixture
def topic(
    spark: SparkSession, listener: KgroupQueryListener, dev_cluster: DevCluster, tmp_path: Path
) -> Topic:
    topic = Topic(spark, listener, dev_cluster.address("bootstrap"), tmp_path)
    with blocking.Admin(topic.bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic.name, 2, 1)]) == {topic.name: None}
    return topic


def test_a_session_that_is_set_up_twice_keeps_its_listeners(
    spark: SparkSession, listener: KgroupQueryListener
) -> None:
    assert install(spark) is listener


# ---- streams


def test_a_query_that_runs_once_leaves_the_group_at_its_end(topic: Topic) -> None:
    topic.produce((10, 5))
    run_to_its_end(topic.writer(startingOffsets="earliest").trigger(once=True))
    topic.until_at({0: 10, 1: 5})
    words = topic.committed()[0].metadata.split()
    assert words[0] == "spark"
    assert words[1].startswith("run=")
    assert words[2:] == [f"query=q-{topic.name}", "batch=0"]

    topic.produce((1, 0))
    run_to_its_end(topic.writer().trigger(once=True))
    topic.until_at({0: 11, 1: 5})
    assert topic.committed()[0].metadata.endswith("batch=1")


def test_a_query_stopped_right_after_a_batch_leaves_the_group_at_its_end(topic: Topic) -> None:
    topic.produce((4, 6))
    query = start(topic.writer(startingOffsets="earliest").trigger(processingTime="1 hour"))
    try:
        until_running_query(query, lambda: query.lastProgress is not None, "the first batch")
    finally:
        query.stop()
    topic.until_at({0: 4, 1: 6})


def test_how_far_a_query_is_behind_is_what_sparks_own_source_would_say(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.produce((30, 10))
    with caplog.at_level(logging.INFO, logger="spark_connector.query_listener"):
        query = start(topic.writer(**THREE_OF_FOUR).trigger(processingTime="1 hour"))
        try:
            block_until(lambda: topic.listener.progress(query), "the progress", DEADLINE_S)
        finally:
            query.stop()
    topic.listener.flush()

    state = topic.listener.progress(f"q-{topic.name}")
    assert state is not None
    (source,) = state.sources
    assert source.behind is not None
    ends = {p.partition: offset for p, offset in source.end.items()}
    behind = {0: 30 - ends[0], 1: 10 - ends[1]}
    assert sum(behind.values()) == 10
    assert {p.partition: n for p, n in source.behind.by_partition.items()} == behind
    assert source.behind.metrics == {
        "avgOffsetsBehindLatest": "5.0",
        "maxOffsetsBehindLatest": str(max(behind.values())),
        "minOffsetsBehindLatest": str(min(behind.values())),
    }

    # The records are from 1970.
    late = [p for p, n in source.behind.by_partition.items() if n]
    assert late
    assert all(source.time_lag_ms[p] > 50 * 365 * 86_400_000 for p in late)
    line = f"query q-{topic.name}, batch 0: topics {topic.name}, group {topic.group}: 10 offsets"
    assert line in caplog.text


def test_a_listener_that_is_given_a_querys_options_needs_no_session(topic: Topic) -> None:
    # The listener of the session knows the query too, and commits the same.
    listener = KgroupQueryListener({f"q-{topic.name}": topic.options(subscribe=topic.name)})
    topic.spark.streams.addListener(listener)
    try:
        topic.produce((2, 2))
        query = run_to_its_end(topic.writer(startingOffsets="earliest").trigger(once=True))
        block_until(lambda: listener.progress(query), "the progress", DEADLINE_S)
    finally:
        topic.spark.streams.removeListener(listener)
    listener.flush()
    assert topic.places() == {0: 2, 1: 2}
    state = listener.progress(query)
    assert state is not None
    assert [source.end for source in state.sources] == [dict.fromkeys(topic.partitions, 2)]


def test_a_group_that_somebody_moved_is_left_to_the_planning_process(topic: Topic) -> None:
    topic.produce((10, 10))
    query = start(topic.writer(startingOffsets="earliest").trigger(processingTime="1 hour"))
    try:
        topic.until_at({0: 10, 1: 10})
    finally:
        query.stop()

    places = {p: OffsetAndMetadata(3) for p in topic.partitions}
    with blocking.Admin(topic.bootstrap) as admin:
        admin.commit_group_offsets(topic.group, places)
    query = start(topic.writer(onGroupReset="fail").trigger(processingTime="1 hour"))
    try:
        block_until(lambda: not query.isActive, "the query's end", DEADLINE_S)
    finally:
        query.stop()
    assert "was moved by someone else" in str(query.exception())
    assert topic.places() == {0: 3, 1: 3}


# ---- batches


def parquet(topic: Topic, table: DataFrame) -> None:
    table.write.mode("append").parquet(str(topic.directory / "out"))


def shuffled_and_cached(topic: Topic, table: DataFrame) -> None:
    cached = table.repartition(2, "value").cache()
    cached.count()
    parquet(topic, cached)


@pytest.mark.parametrize("write", [parquet, shuffled_and_cached])
def test_a_batch_query_that_wrote_commits_its_end(
    topic: Topic, write: Callable[[Topic, DataFrame], None]
) -> None:
    options = {"commit.on": "batch-end", "startingOffsets": "group-or-earliest"}
    topic.produce((7, 0))
    write(topic, topic.table(**options))
    topic.until_at({0: 7, 1: 0})

    topic.produce((1, 2))
    write(topic, topic.table(**options))
    topic.until_at({0: 8, 1: 2})
    assert topic.spark.read.parquet(str(topic.directory / "out")).count() == 10


def test_a_batch_query_that_failed_or_wrote_nothing_commits_nothing(topic: Topic) -> None:
    topic.produce((3, 3))
    table = topic.table(**{"commit.on": "batch-end"})
    with pytest.raises(PySparkException):
        parquet(topic, table.selectExpr("raise_error('broken') value"))
    assert table.count() == 6
    table.show()
    assert topic.places() == {}

    # The listener hears of queries in their order: by a later one, it has heard of the others.
    later = Topic(topic.spark, topic.listener, topic.bootstrap, topic.directory, topic.name)
    later.group = f"later-{topic.name}"
    parquet(later, later.table(**{"commit.on": "batch-end"}))
    later.until_at({0: 3, 1: 3})
    assert topic.places() == {}


def test_a_session_without_the_listener_refuses_to_promise_a_commit(topic: Topic) -> None:
    topic.spark.dataSource.register(KgroupDataSource)
    try:
        with pytest.raises(PySparkException, match=r"commit\.on: .*needs kgroup\.spark\.install"):
            topic.table(**{"commit.on": "batch-end"}).count()
    finally:
        topic.spark.dataSource.register(KgroupDataSourceWithListener)


def test_a_spark_connect_client_reads_and_is_told_what_it_lacks(topic: Topic) -> None:
    topic.produce((3, 2))
    program = [sys.executable, "-m", "tests.spark.connect_client", topic.bootstrap, topic.name]
    ended = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.stdout.splitlines()[-3:] == ["listener None", "rows 5", "refused True"], (
        ended.stderr
    )
    assert "no listener is installed" in ended.stderr
