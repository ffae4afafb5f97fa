"""Run queries with Spark's own Kafka source and with ours, and print what they read.

A process of its own, because a JVM takes the source's JAR only when it starts:

    python -m tests.spark.beside_stock_source JARS BOOTSTRAP TOPIC CHECKPOINT
"""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from clients import blocking
from spark_connector.source import KgroupDataSource

STOCK, OURS = "kafka", "kgroup"

TASK_OPTIONS = (
    {"minPartitions": "5"},
    {"minPartitions": "7", "maxRecordsPerPartition": "40"},
    {"minPartitions": "1"},
)
"""Options for which both sources plan tasks.

In a batch query, Spark's source heeds `maxRecordsPerPartition` only where it divides ranges for
`minPartitions`; ours always does, as both do in streams.
"""


def main(jars: str, bootstrap: str, topic: str, checkpoint: str) -> None:
    """Print as JSON what the queries read from the same checkpoint, and the tasks they plan."""
    spark = start(Path(jars))
    try:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        read = []
        for number, source in enumerate((STOCK, OURS, STOCK, OURS)):
            produce(bootstrap, topic, range(50 * number, 50 * (number + 1)))
            read.append(run_available(spark, source, options, checkpoint))

        tasks = [
            [plan(spark, source, {**options, **more}) for source in (STOCK, OURS)]
            for more in TASK_OPTIONS
        ]
    finally:
        spark.stop()
    print(json.dumps({"read": read, "tasks": tasks}))


def start(jars: Path) -> SparkSession:
    """Start Spark with the JARs of its Kafka source."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, sorted(jars.glob("*.jar")))))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    spark.dataSource.register(KgroupDataSource)
    return spark


def produce(bootstrap: str, topic: str, values: Sequence[int]) -> None:
    """Send every third value to partition 1, the others to partition 0."""
    with blocking.Producer({"bootstrap.servers": bootstrap}) as producer:
        for value in values:
            producer.send(topic, str(value).encode(), partition=int(value % 3 == 0))
        producer.flush()


def run_available(
    spark: SparkSession, source: str, options: dict[str, str], checkpoint: str
) -> list[int]:
    """Continue the query of the checkpoint to the end; return the values that it reads."""
    values: list[int] = []

    def collect(batch: DataFrame, batch_id: int) -> None:
        rows = batch.selectExpr("cast(cast(value as string) as int) as value").collect()
        values.extend(row["value"] for row in rows)

    stream = spark.readStream.format(source).options(**options, startingOffsets="earliest").load()
    query = (
        stream.writeStream.foreachBatch(collect)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return sorted(values)


def plan(spark: SparkSession, source: str, options: dict[str, str]) -> list[list[int]]:
    """Return partition and first offset of each task of a batch query."""
    # Only ours joins small ranges.
    alone = {"joinedTaskOffsets": "0"} if source == OURS else {}
    table = spark.read.format(source).options(**options, **alone).load()
    rows = (
        table.selectExpr("spark_partition_id() as task", "partition", "offset")
        .groupBy("task", "partition")
        .agg({"offset": "min"})
        .collect()
    )
    return sorted([row["partition"], row["min(offset)"]] for row in rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
