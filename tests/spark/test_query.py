"""The source in a real Spark, on a real broker."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.streaming import DEADLINE_S, run_to_its_end, until_running_query
from tests.spark.topic import Topic, create_topic
from tests.stage.cluster import DevCluster
from tests.stage.waiting import block_until


@pytest.fixture
def topic(spark: SparkSession, dev_cluster: DevCluster, tmp_path: Path) -> Topic:
    return create_topic(spark, dev_cluster.address("bootstrap"), tmp_path)


def test_a_batch_query_gives_what_was_produced(topic: Topic) -> None:
    topic.produce(range(1000))
    rows = topic.table(includeHeaders="true").selectExpr("*", "unix_millis(timestamp) ms").collect()
    row_by_value = {int(row.value): row for row in rows}
    assert sorted(row_by_value) == list(range(1000))
    assert len(rows) == 1000
    for value, row in row_by_value.items():
        headers = [("n", str(value).encode())] if value % 2 else None
        assert (row.key, row.topic, row.partition) == (b"k%d" % value, topic.name, value % 2)
        assert (row.offset, row.ms, row.timestampType) == (value // 2, 1_000 + value, 0)
        assert (row.headers and [(h.key, bytes(h.value)) for h in row.headers]) == headers


def test_a_batch_query_from_here_to_there_gives_what_is_between(topic: Topic) -> None:
    topic.produce(range(100))
    rows = topic.table(
        startingOffsets=f'{{"{topic.name}": {{"0": 10, "1": -2}}}}',
        endingOffsets=f'{{"{topic.name}": {{"0": 12, "1": 1}}}}',
    ).collect()
    assert sorted(int(row.value) for row in rows) == [1, 20, 22]
    assert len(rows[0]) == 7


def test_a_query_has_the_columns_that_it_asks_for(topic: Topic) -> None:
    topic.produce(range(4))

    table = topic.table(columns="offset,value,headers")
    assert table.columns == ["value", "offset", "headers"]
    rows = table.orderBy("value").collect()
    assert [(bytes(row["value"]), row["offset"]) for row in rows] == [
        (b"0", 0),
        (b"1", 0),
        (b"2", 1),
        (b"3", 1),
    ]
    assert [row["headers"] is None for row in rows] == [True, False, True, False]


def test_a_batch_query_of_an_empty_topic_gives_nothing(topic: Topic) -> None:
    assert topic.table().collect() == []


def test_a_stream_of_an_empty_topic_waits_for_its_first_records(topic: Topic) -> None:
    seen: list[int] = []
    topic.run_available(seen.extend, startingOffsets="earliest")
    assert seen == []
    topic.produce(range(4))
    topic.run_available(seen.extend, startingOffsets="earliest")
    assert sorted(seen) == [0, 1, 2, 3]


def test_a_stream_stopped_and_restarted_gives_every_record_once(topic: Topic) -> None:
    topic.produce(range(50))
    seen: list[int] = []
    query = topic.run(seen.extend, startingOffsets="earliest")
    try:
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the first records")
    finally:
        query.stop()
    assert sorted(seen) == list(range(50))
    topic.produce(range(50, 90))
    topic.run_available(seen.extend, startingOffsets="earliest")
    assert sorted(seen) == list(range(90))


def test_a_stream_whose_first_batch_fails_loses_nothing(topic: Topic) -> None:
    topic.produce(range(10))

    def fail(values: list[int]) -> None:
        raise RuntimeError("the sink is broken")

    query = topic.run(fail)
    try:
        block_until(lambda: topic.lag() == {0: 0, 1: 0} or not query.isActive, "the query's start")
        topic.produce(range(10, 20))
        block_until(lambda: not query.isActive, "the query's failure", DEADLINE_S)
    finally:
        query.stop()
    assert "the sink is broken" in str(query.exception())
    topic.produce(range(20, 30))
    seen: list[int] = []
    topic.run_available(seen.extend)
    assert sorted(seen) == list(range(10, 30))


def test_an_idle_stream_has_no_lag(topic: Topic) -> None:
    topic.produce(range(20))
    query = topic.run(lambda values: None, startingOffsets="earliest")
    try:
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "no lag")
    finally:
        query.stop()


def test_a_stream_of_what_is_available_leaves_no_lag(topic: Topic) -> None:
    topic.produce(range(20))
    topic.run_available(lambda values: None, startingOffsets="earliest")
    assert topic.lag() == {0: 0, 1: 0}


def test_no_batch_has_more_than_the_most_offsets_per_trigger(topic: Topic) -> None:
    topic.produce(range(40))
    batches: list[list[int]] = []
    topic.run_available(batches.append, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    assert [len(batch) for batch in batches] == [15, 15, 10]
    assert sorted(value for batch in batches for value in batch) == list(range(40))


def test_an_unknown_option_is_named_with_what_may_have_been_meant(topic: Topic) -> None:
    with pytest.raises(AnalysisException, match=r"startingofset: .*did you mean startingOffsets"):
        topic.stream(startingOfset="earliest")


def test_a_batch_with_too_little_waits_for_more_in_a_stream_of_a_least_size(topic: Topic) -> None:
    topic.produce(range(10))
    batches: list[list[int]] = []
    query = topic.run(
        batches.append, startingOffsets="earliest", minOffsetsPerTrigger="8", maxTriggerDelay="1h"
    )
    try:
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the first records")
        topic.produce(range(10, 14))
        until_running_query(query, lambda: topic.lag() == {0: 2, 1: 2}, "the records' arrival")
        topic.produce(range(14, 20))
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the second batch")
    finally:
        query.stop()
    assert batches == [list(range(10)), list(range(10, 20))]


def test_small_partitions_share_a_task_and_large_ones_are_divided(topic: Topic) -> None:
    topic.produce(range(40))
    assert topic.table().rdd.getNumPartitions() == 1
    assert topic.table(joinedTaskOffsets="0").rdd.getNumPartitions() == 2
    divided = topic.table(minPartitions="5")
    assert divided.rdd.getNumPartitions() == 6
    assert sorted(int(row.value) for row in divided.collect()) == list(range(40))


def test_a_batch_query_reads_a_pattern_and_partitions_between_times(topic: Topic) -> None:
    topic.produce(range(40))
    reader = topic.spark.read.format("kgroup").option("kafka.bootstrap.servers", topic.bootstrap)
    by_pattern = reader.option("subscribePattern", f"^{topic.name}$").option(
        "startingTimestamp", "1010"
    )
    rows = by_pattern.option("endingTimestamp", "1020").load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(10, 20))


def test_a_schema_that_is_not_the_sources_is_refused_in_a_sentence(topic: Topic) -> None:
    reader = topic.spark.read.format("kgroup").options(**topic.options())
    with pytest.raises(Exception, match="schema: is that of the source, so leave it out: key"):
        reader.schema("value string").load().collect()
    assert reader.schema(topic.table().schema).load().collect() == []


def test_a_path_is_refused_in_a_sentence(topic: Topic) -> None:
    reader = topic.spark.read.format("kgroup").options(**topic.options())
    with pytest.raises(AnalysisException, match=r"path: .*call load\(\) without a path"):
        reader.load("flights")


def test_sql_reads_a_view_and_refuses_a_table_in_a_sentence(topic: Topic) -> None:
    topic.produce(range(10))
    options = ", ".join(f"'{name}' '{value}'" for name, value in topic.options().items())
    name = topic.group.replace("-", "_")
    using = f"{name} using kgroup options ({options})"
    topic.spark.sql(f"create temporary view {using}")
    assert topic.spark.sql(f"select count(*) as n from {name}").collect()[0]["n"] == 10
    with pytest.raises(AnalysisException, match="provider: comes from CREATE TABLE"):
        topic.spark.sql(f"create table t_{using}")


def test_continuous_processing_is_refused_in_a_sentence(topic: Topic) -> None:
    writer = topic.stream().writeStream.format("noop").trigger(continuous="1 second")
    with pytest.raises(PySparkException, match="kgroup does not support continuous processing"):
        writer.option("checkpointLocation", str(topic.checkpoint)).start()


def test_real_time_mode_is_refused_in_a_sentence(topic: Topic) -> None:
    writer = topic.stream().writeStream.format("console").outputMode("update")
    writer = writer.option("checkpointLocation", str(topic.checkpoint))
    with pytest.raises(StreamingQueryException, match="is not supported in Real-time Mode"):
        run_to_its_end(writer.trigger(realTime="5 minutes"))


# ---- offsets as a table


def offsets_table(topic: Topic, **options: str) -> list[tuple[Any, ...]]:
    reader = topic.spark.read.format("kgroup-offsets")
    given = {"kafka.bootstrap.servers": topic.bootstrap, "group": topic.group, **options}
    columns = ("group", "topic", "partition", "offset", "logStartOffset", "logEndOffset", "lag")
    rows = reader.options(**given).load().select(*columns, "timeLagMs").collect()
    return sorted(map(tuple, rows))


def test_where_groups_are_is_a_table_that_can_be_committed(topic: Topic) -> None:
    topic.produce(range(10))
    to = topic.spark.createDataFrame(
        [(topic.name, 0, 2), (topic.name, 1, 5)], "topic string, partition int, offset long"
    )
    writer = to.write.format("kgroup-offsets").mode("append").option("group", topic.group)
    writer = writer.option("kafka.bootstrap.servers", topic.bootstrap)

    writer.save()
    assert offsets_table(topic) == []
    writer.option("execute", "true").save()
    assert offsets_table(topic) == [
        (topic.group, topic.name, 0, 2, 0, 5, 3, None),
        (topic.group, topic.name, 1, 5, 0, 5, 0, None),
    ]

    # The records are from 1970: the first one that is not consumed is that old.
    behind, at_end = offsets_table(topic, timeLag="true")
    assert behind[-1] > 50 * 365 * 86_400_000
    assert at_end[-1] == 0


def test_a_table_of_offsets_that_are_not_in_the_log_is_refused_whole(topic: Topic) -> None:
    topic.produce(range(10))
    to = topic.spark.createDataFrame(
        [(topic.name, 0, 2), (topic.name, 1, 6)], "topic string, partition int, offset long"
    )
    writer = to.write.format("kgroup-offsets").mode("append").option("group", topic.group)
    writer = writer.option("kafka.bootstrap.servers", topic.bootstrap).option("execute", "true")
    with pytest.raises(PySparkException, match="offset 6 is not in the log, which has 0 to 5"):
        writer.save()
    assert offsets_table(topic) == []


# ---- the group


def test_a_second_query_on_the_group_is_refused(topic: Topic, tmp_path: Path) -> None:
    topic.produce(range(10))
    query = topic.run(lambda values: None, startingOffsets="earliest")
    try:
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the first records")
        second = topic.stream(**{"commit.group.id": topic.group}).writeStream.format("noop")
        with pytest.raises(StreamingQueryException, match="another query on this machine commits"):
            run_to_its_end(second.option("checkpointLocation", str(tmp_path / "second")))
        assert query.isActive
    finally:
        query.stop()


@pytest.mark.parametrize("on_reset", ["warn", "fail", "follow"])
def test_a_group_that_is_reset_while_the_query_runs_is_as_its_option_has_it(
    topic: Topic, on_reset: str
) -> None:
    topic.produce(range(20))
    options = {"startingOffsets": "earliest", "onGroupReset": on_reset}
    query = topic.run(lambda values: None, **options)
    try:
        until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the first records")
        topic.reset({0: 3, 1: 4})
        topic.produce([20, 21])
        if on_reset == "warn":
            until_running_query(query, lambda: topic.lag() == {0: 0, 1: 0}, "the next records")
        else:
            block_until(lambda: not query.isActive, "the query's end", DEADLINE_S)
    finally:
        query.stop()
    if on_reset != "warn":
        assert "was moved by someone else" in str(query.exception())
        assert topic.lag() == {0: 8, 1: 7}

    # With a new checkpoint only one of them begins where the group is.
    if on_reset == "follow":
        assert "delete the checkpoint and start the query again" in str(query.exception())
        seen: list[int] = []
        topic.checkpoint = topic.checkpoint.with_name("new")
        topic.run_available(seen.extend, **options)
        assert sorted(seen) == sorted([*range(6, 22, 2), *range(9, 22, 2)])
