"""Flights to a table of Parquet files, in which a batch that is run again replaces itself.

`foreachBatch` promises each batch at least once. Here a batch writes its files, by origin, to a
directory of its own, and then a manifest that names that directory, which takes the place of the
batch's former manifest at once. Readers go by the manifests: they see a batch whole, or not yet,
and never twice. What a killed run has left behind without a manifest is not part of the table.

Manifests are renamed, which replaces the former one at once on a local file system, or one like
HDFS that is mounted. Object stores are not covered: there a rename is a copy and a deletion.

Spark's checkpoint decides what is read next; the group `flights-table` shows how far that is.
Table and checkpoint belong together, so a table whose checkpoint is lost is refused.

    python -m examples.pipelines.flights_table --bootstrap-server localhost:9092 \\
        --checkpoint /tmp/flights-table/checkpoint --table /tmp/flights-table/table
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.pipelines.launch import (
    choose_trigger,
    make_parser,
    run_program,
    run_to_end,
    start_session,
)

FLIGHT = "id long, time_hour timestamp, carrier string, origin string, dest string, distance long"


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--table", type=Path, required=True, help="directory of the table")
    arguments = parser.parse_args(argv)
    if arguments.table.exists() and not Path(arguments.checkpoint).exists():
        sys.exit(
            f"error: {arguments.table} has batches of another checkpoint than "
            f"{arguments.checkpoint}, which is new: give that one, or another table"
        )

    spark = start_session("flights table", arguments)
    flights = (
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .option("commit.group.id", "flights-table")
        .load()
        .select(f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight"))
        .select("flight.*")
    )
    run_to_end(
        flights.writeStream.foreachBatch(
            lambda batch, batch_id: write_batch(arguments.table, batch, batch_id)
        )
        .queryName("flights-table")
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(**choose_trigger(arguments))
        .start()
    )
    read_table(spark, arguments.table).groupBy("origin").count().orderBy("origin").show()


def write_batch(table: Path, batch: DataFrame, batch_id: int) -> None:
    """Write the rows of a batch, and make them part of the table in the place of former ones."""
    manifest = table / "manifests" / f"{batch_id:020}.json"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    former = json.loads(manifest.read_text())["directory"] if manifest.exists() else None

    directory = f"batch-{batch_id}-{uuid4().hex}"
    batch.write.partitionBy("origin").parquet(str(table / directory))

    new = manifest.with_suffix(".new")
    new.write_text(json.dumps({"batch": batch_id, "directory": directory}))
    new.replace(manifest)

    if former is not None:
        shutil.rmtree(table / former)


def read_table(spark: SparkSession, table: Path) -> DataFrame:
    """Return the rows of all batches that have a manifest."""
    manifests = sorted(table.glob("manifests/*.json"))
    directories = [json.loads(manifest.read_text())["directory"] for manifest in manifests]
    rows = [spark.read.parquet(str(table / directory)) for directory in directories]
    whole = rows[0]
    for more in rows[1:]:
        whole = whole.union(more)
    return whole


if __name__ == "__main__":
    run_program(main)
