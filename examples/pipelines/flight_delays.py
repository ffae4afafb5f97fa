"""Delays by carrier and hour, then totals of them: two queries with a topic between them.

The first query counts flights in windows of an hour. A window goes to the topic `delays` when the
watermark says that no flight can come for it any more, and with `delivery=once` it goes there once,
whatever is killed and run again. The second query adds the windows up, and replaces the file
`--totals` after each batch. Its place is the group `delay-totals`: its lag, which this shows at the
end, is what `kgroup describe delay-totals` and every lag exporter show.

Minutes are whole numbers on purpose: a sum of doubles depends on their order, and with
`delivery=once` a task must give the same rows when it is run again.

    python -m examples.pipelines.flight_delays --bootstrap-server localhost:9092 \\
        --checkpoint /tmp/flight-delays
"""

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.pipelines.launch import (
    choose_trigger,
    make_parser,
    run_program,
    run_to_end,
    start_session,
)

FLIGHT = "time_hour timestamp, carrier string, dep_delay double"
WINDOW = "carrier string, start timestamp, flights long, minutes long"
LATE = "1 day"
GROUP = "delay-totals"


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--totals", type=Path, default=Path("totals.json"))
    arguments = parser.parse_args(argv)
    spark = start_session("flight delays", arguments)

    windows = write_windows(spark, arguments)
    if not arguments.follow:
        run_to_end(windows)
    run_to_end(write_totals(spark, arguments))

    show_lag(spark, arguments.bootstrap_server)
    print(arguments.totals.read_text())


def write_windows(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Start the query from `flights` to `delays`."""
    flights = (
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .load()
        .select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight"))
        .select("flight.*")
    )
    windows = (
        flights.withWatermark("time_hour", LATE)
        .groupBy(f.window("time_hour", "1 hour"), "carrier")
        .agg(
            f.count("*").alias("flights"),
            f.sum(f.coalesce(f.col("dep_delay").cast("long"), f.lit(0))).alias("minutes"),
        )
        .select("carrier", f.col("window.start").alias("start"), "flights", "minutes")
    )
    return (
        windows.select(
            f.col("carrier").alias("key"), f.to_json(f.struct(windows.columns)).alias("value")
        )
        .writeStream.format("kgroup")
        .queryName("windows")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("topic", "delays")
        .option("delivery", "once")
        .option("checkpointLocation", os.path.join(arguments.checkpoint, "windows"))
        .trigger(**choose_trigger(arguments))
        .start()
    )


def write_totals(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    """Start the query from `delays` to the file of totals; its place is that of the group."""
    totals = (
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", "delays")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .option("commit.group.id", GROUP)
        .load()
        .select(f.from_json(f.col("value").cast("string"), WINDOW).alias("window"))
        .groupBy("window.carrier")
        .agg(f.sum("window.flights").alias("flights"), f.sum("window.minutes").alias("minutes"))
    )

    def replace_file(batch: DataFrame, batch_id: int) -> None:
        rows = batch.orderBy("carrier").collect()
        text = json.dumps({row["carrier"]: [row["flights"], row["minutes"]] for row in rows})
        new = arguments.totals.with_suffix(".new")
        new.write_text(text)
        new.replace(arguments.totals)

    return (
        totals.writeStream.foreachBatch(replace_file)
        .queryName("totals")
        .outputMode("complete")
        .option("checkpointLocation", os.path.join(arguments.checkpoint, "totals"))
        .trigger(**choose_trigger(arguments))
        .start()
    )


def show_lag(spark: SparkSession, bootstrap_server: str) -> None:
    """Show how far the second query's group is."""
    lag = spark.read.format("kgroup-offsets").option("kafka.bootstrap.servers", bootstrap_server)
    table = lag.option("group", GROUP).load().orderBy("topic", "partition")
    table.select("group", "topic", "partition", "offset", "logEndOffset", "lag").show()


if __name__ == "__main__":
    run_program(main)
