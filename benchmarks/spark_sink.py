"""Write rows from Spark to our broker: our sink beside Spark's own, in one session on two cores.

The rows are made by Spark itself, in two tasks, and go to a topic of two partitions with acks=all.
The peer is spark-sql-kafka-0-10, which Maven fetches once.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.brokers import Broker
from benchmarks.peer import CACHE, PeerMissing
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Row, at_least
from spark_connector.source import KgroupDataSource

JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
"""The peer, and what Spark itself does not bring of it."""

TASKS = 2
ROWS_A_SECOND = {100: 250_000, 1_000: 60_000}
"""Rows for each second of a round, by the bytes of a value: about what the peer writes."""
WANTED = {100: at_least(0.7), 1_000: at_least(0.9)}


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield rows a second; the peer's column has Spark's own sink. Raises PeerMissing."""
    spark = start_spark(fetch_jars())
    try:
        for value_bytes, wanted in WANTED.items():
            contestants = [write(spark, name, broker, value_bytes) for name in ("kgroup", "kafka")]
            (figures,) = alternate(contestants, rounds)
            question = f"Spark writes {value_bytes:,} B, acks=all, our sink · Spark's"
            yield Row(question, "rows/s", wanted, figures)
    finally:
        spark.stop()


def fetch_jars() -> list[Path]:
    """Return the peer's jars; the first call fetches them. Raises PeerMissing."""
    directory = CACHE / "spark-sink"
    jars = [directory / "-".join(name.split(":")[1:]) for name in JARS]
    jars = [jar.with_name(f"{jar.name}.jar") for jar in jars]

    for coordinate, jar in zip(JARS, jars, strict=True):
        if jar.exists():
            continue
        goal = ["dependency:copy", f"-Dartifact={coordinate}", f"-DoutputDirectory={directory}"]
        try:
            subprocess.run(
                ["mvn", "-q", "-B", *goal],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            raise PeerMissing(f"Maven could not fetch {coordinate}: {error}") from error
    return jars


def start_spark(jars: list[Path]) -> SparkSession:
    """Start Spark on two cores, with both sinks."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    spark.dataSource.register(KgroupDataSource)
    return spark


def write(spark: SparkSession, source: str, broker: Broker, value_bytes: int) -> Contestant:
    """Return a contestant that writes rows of so many bytes; its figure is rows a second."""

    def write_for(seconds: float) -> tuple[float, ...]:
        count = int(ROWS_A_SECOND[value_bytes] * seconds)
        rows = make_rows(spark, count, value_bytes)
        with broker.create_topic(TASKS) as topic:
            writer = rows.write.format(source).mode("append").option("topic", topic)
            writer = writer.option("kafka.bootstrap.servers", broker.bootstrap)
            begins = time.perf_counter()
            writer.option("kafka.acks", "all").save()
            return (count / (time.perf_counter() - begins),)

    return write_for


def make_rows(spark: SparkSession, count: int, value_bytes: int) -> DataFrame:
    """Return rows with different values, which cost Spark little to make."""
    number = "lpad(cast(id as string), 10, '0')"
    text = f"concat({number}, '{'x' * (value_bytes - 10)}')"
    return spark.range(0, count, 1, TASKS).selectExpr(f"cast({text} as binary) value")
