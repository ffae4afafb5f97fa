"""Find how long flights were in the air: the join of two streams, departures and arrivals.

A departure waits in Spark's state for its arrival. The watermarks bound that state: a departure
whose arrival has not come within a day of event time is given up. The pairs go to the topic
`airborne`, each once.

    python -m examples.pipelines.airborne --bootstrap-server localhost:9092 \\
        --checkpoint /tmp/airborne
"""

import argparse
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.pipelines.launch import (
    choose_trigger,
    make_parser,
    run_program,
    run_to_end,
    start_session,
)

DEPARTURE = "id long, time timestamp, carrier string"
ARRIVAL = "id long, time timestamp, dest string"
LATE = "1 hour"


def main(argv: Sequence[str] | None = None) -> None:
    arguments = make_parser(__doc__).parse_args(argv)
    spark = start_session("airborne", arguments)
    flights = pair(
        read_events(spark, arguments, "departures", DEPARTURE),
        read_events(spark, arguments, "arrivals", ARRIVAL),
    )
    query = (
        flights.select(
            f.col("carrier").alias("key"), f.to_json(f.struct(flights.columns)).alias("value")
        )
        .writeStream.format("kgroup")
        .queryName("airborne")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("topic", "airborne")
        .option("delivery", "once")
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(**choose_trigger(arguments))
        .start()
    )
    run_to_end(query)


def read_events(
    spark: SparkSession, arguments: argparse.Namespace, topic: str, fields: str
) -> DataFrame:
    """Read the events of a topic, with a watermark on their own time."""
    return (
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .option("commit.group.id", f"airborne-{topic}")
        .load()
        .select(f.from_json(f.col("value").cast("string"), fields).alias("event"))
        .select("event.*")
        .withWatermark("time", LATE)
    )


def pair(departures: DataFrame, arrivals: DataFrame) -> DataFrame:
    """Return each flight that left and arrived within a day, with its minutes in the air."""
    left, landed = departures.alias("left"), arrivals.alias("landed")
    within_a_day = f.expr(
        "left.id = landed.id and landed.time between left.time and left.time + interval 1 day"
    )
    seconds = f.unix_timestamp("landed.time") - f.unix_timestamp("left.time")
    return left.join(landed, within_a_day).select(
        "left.id", "carrier", "dest", (seconds / 60).cast("int").alias("minutes")
    )


if __name__ == "__main__":
    run_program(main)
