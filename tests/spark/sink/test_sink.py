"""The sink in a real Spark, on a real broker."""

from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark_connector.sink.options import read_sink_options
from spark_connector.sink.writer import KgroupStreamWriter
from spark_connector.source import KgroupDataSource
from tests.spark.sink.conftest import Topic
from tests.spark.streaming import run_to_its_end

VALUE = "cast(id as string) value"


def last_line(failed: pytest.ExceptionInfo[Exception]) -> str:
    """Return the sentence of an error, which stands behind the trace of a Python worker."""
    lines = [line.strip() for line in str(failed.value).splitlines() if ": " in line]
    return next(
        line for line in lines if line.startswith(("spark_connector.", "protocol.", "clients."))
    )


def test_a_row_becomes_a_record_with_all_its_columns(topic: Topic) -> None:
    topic.write(
        topic.rows(
            "if(id % 3 = 0, null, concat('k', id)) key",
            "cast(cast(id as string) as binary) value",
            "cast(id % 2 as int) partition",
            "timestamp_millis(1000 + id) timestamp",
            "array(struct('h' as key, cast('x' as binary) as value),"
            " struct('n' as key, cast(null as binary) as value)) headers",
            "'ignored' offset",
        )
    )
    rows = topic.table(includeHeaders="true").selectExpr("*", "unix_millis(timestamp) ms").collect()
    assert sorted(int(row.value) for row in rows) == list(range(10))
    for row in rows:
        n = int(row.value)
        assert row.key == (None if n % 3 == 0 else b"k%d" % n)
        assert (row.partition, row.ms) == (n % 2, 1_000 + n)
        assert [(h.key, h.value) for h in row.headers] == [("h", b"x"), ("n", None)]


def test_what_the_source_gives_the_sink_takes(topic: Topic, other_topic: Topic) -> None:
    topic.write(topic.rows("cast(id as string) key", VALUE))
    other_topic.write(topic.table(includeHeaders="true"))
    columns = ("key", "value", "partition", "offset", "timestamp")
    assert sorted(other_topic.table().select(*columns).collect()) == sorted(
        topic.table().select(*columns).collect()
    )


def test_the_column_topic_says_where_a_row_goes(topic: Topic) -> None:
    rows = topic.rows(VALUE, f"'{topic.name}' topic", count=4)
    writer = rows.write.format("kgroup").mode("append")
    writer.option("kafka.bootstrap.servers", topic.bootstrap).save()
    assert topic.values() == [b"0", b"1", b"2", b"3"]


def test_rows_of_a_partition_keep_their_order_over_many_batches(topic: Topic) -> None:
    rows = topic.rows(VALUE, "cast(id % 2 as int) partition", count=3_000).coalesce(1)
    topic.write(rows, **{"kafka.batch.size": "2000", "kafka.compression.type": "gzip"})
    table = topic.table().selectExpr("partition", "offset", "cast(cast(value as string) as int) n")
    for partition in range(2):
        read = table.where(f"partition = {partition}").orderBy("offset").collect()
        assert [row.n for row in read] == sorted(row.n for row in read)
        assert len(read) == 1_500


def test_an_empty_table_writes_nothing(topic: Topic) -> None:
    topic.write(topic.rows(VALUE, count=0), delivery="once")
    assert topic.values() == []


def test_a_batch_query_with_once_writes_its_rows(topic: Topic) -> None:
    topic.write(topic.rows(VALUE), delivery="once")
    topic.write(topic.rows(VALUE), delivery="once")
    assert topic.values() == sorted(b"%d" % (n // 2) for n in range(20))


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["id value"], "value attribute unsupported type bigint. value must be a(n) string or bin"),
        (["'x' key"], "Required attribute 'value' not found"),
        (["'x' value", "id partition"], "partition must be a(n) int"),
    ],
)
def test_columns_that_cannot_be_written_are_refused_in_sparks_words(
    topic: Topic, columns: list[str], text: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        topic.write(topic.rows(*columns))
    assert text in last_line(refused)


def test_an_unknown_option_is_named_with_what_may_have_been_meant(topic: Topic) -> None:
    with pytest.raises(AnalysisException, match=r"kafka\.ackss: .*did you mean acks"):
        topic.write(topic.rows(VALUE), **{"kafka.ackss": "all"})


def test_a_topic_cannot_be_overwritten(topic: Topic) -> None:
    writer = topic.rows(VALUE).write.format("kgroup").options(**topic.options())
    with pytest.raises(AnalysisException, match="Save mode overwrite not allowed for Kafka"):
        writer.mode("overwrite").save()
    # What Spark itself refuses for sources in Python.
    for mode in ("errorifexists", "ignore"):
        with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
            writer.mode(mode).save()


def test_a_null_topic_fails_the_query_in_one_sentence(topic: Topic) -> None:
    rows = topic.rows(VALUE, "cast(null as string) topic")
    writer = rows.write.format("kgroup").mode("append")
    with pytest.raises(PythonException) as failed:
        writer.option("kafka.bootstrap.servers", topic.bootstrap).save()
    assert "BadRow: null topic present in the data. Use the topic option" in last_line(failed)


def test_a_null_value_is_a_tombstone(topic: Topic) -> None:
    topic.write(topic.rows("cast(id as string) key", "cast(null as string) value", count=2))
    rows = topic.table(columns="key,value").orderBy("key").collect()
    assert [(bytes(row["key"]), row["value"]) for row in rows] == [(b"0", None), (b"1", None)]


def test_a_topics_name_that_cannot_be_is_named_with_what_can(topic: Topic) -> None:
    with pytest.raises(PythonException) as failed:
        topic.write(topic.rows(VALUE), topic="a b!")
    assert "INVALID_TOPIC_EXCEPTION: a b!: a topic's name has 1 to 249" in last_line(failed)


def test_a_record_that_is_too_large_is_named_with_what_to_set(topic: Topic) -> None:
    rows = topic.rows("repeat('x', 3000000) value", "1 partition", count=1)
    with pytest.raises(PythonException) as failed:
        topic.write(rows)
    assert f"{topic.name}-1: a record of 3000" in last_line(failed)
    assert "set kafka.max.request.size" in last_line(failed)

    # The broker has a bound of its own.
    with pytest.raises(PythonException) as failed:
        topic.write(rows, **{"kafka.max.request.size": "5000000"})
    assert f"{topic.name}-1" in last_line(failed)
    assert "raise max.message.bytes of the topic" in last_line(failed)


def test_a_stream_writes_and_a_group_shows_how_far(
    topic: Topic, other_topic: Topic, tmp_path: Path
) -> None:
    topic.write(topic.rows(VALUE))
    out = other_topic
    run(topic, out, tmp_path, delivery="once")
    assert out.values() == topic.values()

    topic.write(topic.rows("cast(10 + id as string) value"))
    query = run(topic, out, tmp_path, delivery="once")
    assert out.values() == topic.values()
    places = out.group(f"spark-sink-{query.id}")
    assert sum(offset for offset, _ in places.values()) == 20
    assert {metadata for _, metadata in places.values()} == {"batch 1"}


def test_foreach_batch_writes_too(topic: Topic, other_topic: Topic, tmp_path: Path) -> None:
    topic.write(topic.rows(VALUE))
    out = other_topic

    def write(batch: DataFrame, batch_id: int) -> None:
        out.write(batch.select("value"))

    stream = source(topic).writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", str(tmp_path / "c"))
    run_to_its_end(stream.trigger(availableNow=True))
    assert out.values() == topic.values()


@pytest.mark.parametrize("step", ["uncommitted", "committed"])
def test_a_batch_that_is_run_again_around_its_commit_writes_nothing_twice(
    topic: Topic, other_topic: Topic, tmp_path: Path, step: str
) -> None:
    topic.write(topic.rows(VALUE))
    name = f"kgroup-{step}"
    topic.spark.dataSource.register(failing_source(name, step, tmp_path / "failed"))

    with pytest.raises(StreamingQueryException, match=f"the commit failed, {step}"):
        run(topic, other_topic, tmp_path / "c", name, delivery="once")
    assert other_topic.values() == topic.values()

    query = run(topic, other_topic, tmp_path / "c", name, delivery="once")
    assert other_topic.values() == topic.values()
    places = other_topic.group(f"spark-sink-{query.id}").values()
    assert {metadata for _, metadata in places} == {"batch 0"}


def failing_source(source_name: str, step: str, failed: Path) -> type[KgroupDataSource]:
    """Return our source with a sink whose first commit fails, before or after it is done.

    The classes are made here so that Spark sends them whole: its workers cannot import tests.
    """

    class FailingWriter(KgroupStreamWriter):
        def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
            if step == "uncommitted":
                self.fail_once()
            super().commit(messages, batchId)
            self.fail_once()

        def fail_once(self) -> None:
            if not failed.exists():
                failed.touch()
                raise RuntimeError(f"the commit failed, {step}")

    class FailingSource(KgroupDataSource):
        @classmethod
        def name(cls) -> str:
            return source_name

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
            return FailingWriter(read_sink_options(dict(self.options)), schema)

    return FailingSource


def source(topic: Topic) -> DataFrame:
    reader = topic.spark.readStream.format("kgroup")
    reader = reader.option("kafka.bootstrap.servers", topic.bootstrap)
    return reader.options(subscribe=topic.name, startingOffsets="earliest").load()


def run(
    topic: Topic, out: Topic, checkpoint: Path, sink: str = "kgroup", **options: str
) -> StreamingQuery:
    """Run a query from topic to topic over all there is."""
    writer = source(topic).select("value").writeStream.format(sink)
    writer = writer.options(**out.options(**options)).option("checkpointLocation", str(checkpoint))
    return run_to_its_end(writer.trigger(availableNow=True))
