"""Read the past beside a live query, and meet it at one offset: no gap, nothing twice.

Where the live query begins is fixed once: the ends of the log go to the file `meeting-point.json`
before anything is read. The live query has them as its `startingOffsets`, now and whenever it is
started again. The batch query reads what was before, from `--since` on, and has the same offsets as
its `endingOffsets`. So every record is in one of the two, whatever is produced meanwhile.

    python -m examples.pipelines.backfill --bootstrap-server localhost:9092 \\
        --checkpoint /tmp/backfill/checkpoint --out /tmp/backfill --since 2013-06-01
"""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.pipelines.launch import (
    choose_trigger,
    make_parser,
    run_program,
    run_to_end,
    start_session,
)
from kgroup import LATEST_TIME, TopicPartition
from kgroup.blocking import Admin

TOPIC = "flights"
FLIGHT = "id long, carrier string, distance long"


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory for past and live rows")
    parser.add_argument("--since", type=datetime.fromisoformat, required=True, help="UTC")
    arguments = parser.parse_args(argv)

    point = fix_meeting_point(arguments.bootstrap_server, arguments.out / "meeting-point.json")
    spark = start_session("backfill", arguments)
    live, past = str(arguments.out / "live"), str(arguments.out / "past")
    query = (
        read_live(spark, arguments, point)
        .writeStream.format("parquet")
        .queryName("live")
        .option("path", live)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(**choose_trigger(arguments))
        .start()
    )
    read_past(spark, arguments, point).write.mode("overwrite").parquet(past)
    run_to_end(query)

    flights = spark.read.schema(FLIGHT).parquet(past, live)
    flights.agg(f.count("*").alias("flights"), f.sum("distance").alias("miles")).show()


def fix_meeting_point(bootstrap_server: str, file: Path) -> str:
    """Return the offsets in the file; if there is none, write the ends of the log to it."""
    if not file.exists():
        with Admin(bootstrap_server) as admin:
            count = len(admin.describe_topics([TOPIC])[TOPIC].partitions)
            partitions = [TopicPartition(TOPIC, number) for number in range(count)]
            ends = admin.list_offsets(dict.fromkeys(partitions, LATEST_TIME))
        offsets = {str(partition.partition): end.offset for partition, end in ends.items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps({TOPIC: offsets}))
        new.replace(file)
    return file.read_text()


def read_live(spark: SparkSession, arguments: argparse.Namespace, point: str) -> DataFrame:
    """Read what comes from the point on."""
    return decode(
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", TOPIC)
        .option("startingOffsets", point)
        .option("maxOffsetsPerTrigger", arguments.batch)
        .option("commit.group.id", "backfill-live")
        .load()
    )


def read_past(spark: SparkSession, arguments: argparse.Namespace, point: str) -> DataFrame:
    """Read what was before the point, since a time.

    A partition is read from its first record of that time or later on, which may be followed by
    older ones. A partition that came after the point is the live query's alone.
    """
    since = arguments.since.replace(tzinfo=UTC)
    partitions = sorted(map(int, json.loads(point)[TOPIC]))
    return decode(
        spark.read.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("assign", json.dumps({TOPIC: partitions}))
        .option("startingTimestamp", str(int(since.timestamp() * 1000)))
        .option("startingOffsetsByTimestampStrategy", "latest")
        .option("endingOffsets", point)
        .load()
        .where(f.col("timestamp") >= f.lit(since))
    )


def decode(records: DataFrame) -> DataFrame:
    flight = f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    return records.select(flight).select("flight.*")


if __name__ == "__main__":
    run_program(main)
