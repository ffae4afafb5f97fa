"""A stream and a batch query whose places are in the archive: a checkpoint, and a group."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from clients import blocking
from kgroup.spark import commit_end, find_end
from spark_connector.source import KgroupDataSource
from tests.spark.streaming import run_to_its_end
from tests.stage.cluster import DevCluster

TOPIC, STREAM_GROUP, BATCH_GROUP = "spark-values", "spark-stream", "spark-batch"


def run_queries(
    cluster: DevCluster, folder: Path, to_send: Iterable[int], expected: Iterable[int]
) -> None:
    """Send values, then read them by both queries: they must see the expected ones alone."""
    bootstrap = cluster.address("bootstrap")
    with blocking.Producer({"bootstrap.servers": bootstrap}) as producer:
        for value in to_send:
            producer.send(TOPIC, b"%d" % value, partition=0).result()
    wanted = list(expected)

    with _spark() as spark:
        seen: list[int] = []

        def sink(batch: DataFrame, batch_id: int) -> None:
            seen.extend(_values(batch))

        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": TOPIC}
        first = {"startingOffsets": "earliest"}
        stream = spark.readStream.format("kgroup").options(
            **options, **first, **{"commit.group.id": STREAM_GROUP}
        )
        writer = stream.load().writeStream.foreachBatch(sink).trigger(availableNow=True)
        run_to_its_end(writer.option("checkpointLocation", str(folder / "stream")))
        assert sorted(seen) == wanted, f"stream: {seen}"

        given = {**options, "startingOffsets": "group-or-earliest"}
        given["commit.group.id"] = BATCH_GROUP
        end = find_end(given)
        table = spark.read.format("kgroup").options(**given, endingOffsets=end).load()
        values = _values(table)
        commit_end(given, end)
        assert sorted(values) == wanted, f"batch: {values}"


def _values(frame: DataFrame) -> list[int]:
    rows = frame.selectExpr("cast(cast(value as string) as int) as value").collect()
    return [row["value"] for row in rows]


@contextmanager
def _spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    session.dataSource.register(KgroupDataSource)
    try:
        yield session
    finally:
        session.stop()
