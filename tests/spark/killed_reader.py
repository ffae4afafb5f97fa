"""A query that writes the values of each batch to a file, and is killed where files say.

    python -m tests.spark.killed_reader BOOTSTRAP TOPIC GROUP DIRECTORY MASTER

A file STEP-BATCH (see tests/spark/kills.py) kills at that step of that batch: `asked` the planning
process before it says where the batch ends, `planned` the same process before it gives the tasks;
`task` the Python worker of a task that has read a part of its range, `executor` the JVM above it,
`driver` the driver in the same moment; `unwritten` the driver before the batch is written, and
`written` between that and Spark's own commit.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from spark_connector.options import read_options
from spark_connector.source import KgroupDataSource
from spark_connector.stream_offset import from_json
from spark_connector.stream_reader import KgroupStreamReader
from tests.spark.kills import (
    KILLS,
    kill_driver,
    kill_worker,
    read_batch_id,
    start_session,
    take_fault,
)

BATCH = 2_000
"""Offsets of a batch."""
FETCH_BYTES = 1_000
"""A fetch gives one batch of the log, and a range has many."""
PART = 5
"""Fetches after which a task is killed: less than half of its range."""


class MortalSource(KgroupDataSource):
    """The data source, with a reader that kills."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MortalReader(read_options(dict(self.options), streaming=True))


class MortalReader(KgroupStreamReader):
    """The reader, with faults around what it does."""

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        if take_fault(f"asked-{_count_batches(start)}"):
            kill_worker()
        return super().latestOffset(start, limit)

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        if take_fault(f"planned-{_count_batches(start)}"):
            kill_worker()
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch_id = read_batch_id()
        for number, batch in enumerate(super().read(partition)):
            yield batch
            if number < PART:
                continue

            for step, kill in KILLS.items():
                if take_fault(f"{step}-{batch_id}"):
                    kill()


def _count_batches(start: Mapping[str, Any]) -> int:
    """Return how many batches lie before a place."""
    return sum(from_json(start).values()) // BATCH


def main(bootstrap: str, topic: str, group: str, directory: str, master: str) -> None:
    """Run the query until it has read all there is."""
    spark = start_session(master)
    spark.dataSource.register(MortalSource)

    def write(batch: DataFrame, batch_id: int) -> None:
        if take_fault(f"unwritten-{batch_id}"):
            kill_driver()

        # A batch that is run again replaces its file.
        values = batch.selectExpr("cast(cast(value as string) as int) n").collect()
        file = Path(directory) / f"batch-{batch_id}.json"
        file.write_text(json.dumps([row.n for row in values]))
        if take_fault(f"written-{batch_id}"):
            kill_driver()

    source = spark.readStream.format("kgroup").option("kafka.bootstrap.servers", bootstrap)
    source = source.option("kafka.max.partition.fetch.bytes", FETCH_BYTES)
    source = source.option("maxOffsetsPerTrigger", BATCH).option("commit.group.id", group)

    # A task for each partition, however little it has to read.
    source = source.options(subscribe=topic, startingOffsets="earliest", joinedTaskOffsets="0")
    query = source.load().writeStream.foreachBatch(write)
    query = query.option("checkpointLocation", f"{directory}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
