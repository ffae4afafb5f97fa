"""Decode JSON or Avro records, and write them as Parquet.

JSON is decoded by Spark itself (`from_json`): rows leave Python as Arrow batches and do not come
back. Avro is decoded by fastavro's compiled reader, in `mapInArrow`: Arrow batches in and out,
without pandas and without a Row for each record.

    python -m examples.pipelines.decode --bootstrap-server localhost:9092 \\
        --checkpoint /tmp/decode/checkpoint --out /tmp/decode/flights --format avro
"""

import importlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from examples.packages import require
from examples.pipelines.launch import (
    choose_trigger,
    make_parser,
    run_program,
    run_to_end,
    start_session,
)

TOPICS = {"json": "flights", "avro": "flights-avro"}
FLIGHT = "id long, carrier string, origin string, dest string, dep_delay double, distance long"

AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "origin", "type": "string"},
        {"name": "dest", "type": "string"},
        {"name": "dep_delay", "type": ["null", "double"]},
        {"name": "distance", "type": "long"},
    ],
}
ARROW_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("carrier", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("dep_delay", pa.float64()),
        ("distance", pa.int64()),
    ]
)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--format", choices=sorted(TOPICS), default="json")
    parser.add_argument("--out", required=True, help="directory of the Parquet files")
    arguments = parser.parse_args(argv)
    if arguments.format == "avro":
        require_fastavro()

    spark = start_session("decode", arguments)
    records = (
        spark.readStream.format("kgroup")
        .option("kafka.bootstrap.servers", arguments.bootstrap_server)
        .option("subscribe", TOPICS[arguments.format])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", arguments.batch)
        .option("commit.group.id", f"decode-{arguments.format}")
        .load()
    )
    decode = decode_avro if arguments.format == "avro" else decode_json
    run_to_end(
        decode(records)
        .writeStream.format("parquet")
        .queryName(f"decode-{arguments.format}")
        .option("path", arguments.out)
        .option("checkpointLocation", arguments.checkpoint)
        .trigger(**choose_trigger(arguments))
        .start()
    )
    flights = spark.read.schema(FLIGHT).parquet(arguments.out)
    flights.groupBy("carrier").count().orderBy("carrier").show()


def require_fastavro() -> Any:
    """Return the package fastavro; end the program where it is missing."""
    require("fastavro")
    return importlib.import_module("fastavro")


def decode_json(records: DataFrame) -> DataFrame:
    flight = f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    return records.select(flight).select("flight.*")


def decode_avro(records: DataFrame) -> DataFrame:
    return records.select("value").mapInArrow(decode_avro_batches, FLIGHT)


def decode_avro_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode values that are Avro without a header; null values have no row."""
    fastavro = require_fastavro()
    schema = fastavro.parse_schema(AVRO_SCHEMA)

    for batch in batches:
        values = batch.column("value").drop_null().to_pylist()
        flights = [fastavro.schemaless_reader(BytesIO(value), schema) for value in values]
        yield pa.RecordBatch.from_pylist(flights, ARROW_SCHEMA)


if __name__ == "__main__":
    run_program(main)
