"""A query from topic to topic, which is killed where the files of a directory say.

    python -m tests.spark.sink.killed_query BOOTSTRAP FROM TO CHECKPOINT DELIVERY MASTER

A file STEP-BATCH (see tests/spark/kills.py) kills at that step of that batch: `task` the Python
worker of a task that has written a part of its rows, `executor` the JVM above it; `driver` the
driver in the same moment, `uncommitted` before the sink commits the batch, and `committed` between
that and Spark's own commit.
"""

import sys
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_connector.log_offsets import connect_admin
from spark_connector.sink.options import SinkOptions, read_sink_options
from spark_connector.sink.writer import KgroupStreamWriter, list_ends
from spark_connector.source import KgroupDataSource
from tests.spark.kills import KILLS, kill_driver, read_batch_id, start_session, take_fault
from tests.stage.waiting import block_until

BATCH = 2_000
"""Offsets of a batch."""
FEW_ROWS = 50
"""Rows of an Arrow batch."""
PART = 10
"""Arrow batches after which a task is killed: half of its rows."""


class MortalSource(KgroupDataSource):
    """The data source, with a writer that kills."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return MortalWriter(read_sink_options(dict(self.options)), schema)


class MortalWriter(KgroupStreamWriter):
    """The writer, with faults around what it does."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return super().write(_die_halfway(self._options, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if take_fault(f"uncommitted-{batchId}"):
            kill_driver()
        super().commit(messages, batchId)
        if take_fault(f"committed-{batchId}"):
            kill_driver()


def _die_halfway(
    options: SinkOptions, iterator: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    batch_id = read_batch_id()
    written = _count_records(options)

    for number, batch in enumerate(iterator):
        yield batch
        if number < PART:
            continue

        for step, kill in KILLS.items():
            if take_fault(f"{step}-{batch_id}"):
                # What was sent is written by now, in part.
                block_until(lambda: _count_records(options) > written, "the first rows")
                kill()


def _count_records(options: SinkOptions) -> int:
    assert options.topic is not None
    with closing(connect_admin(options.cluster_settings)) as brokers:
        return sum(list_ends(brokers, options.topic).values())


def main(
    bootstrap: str, from_topic: str, to_topic: str, checkpoint: str, delivery: str, master: str
) -> None:
    """Run the query until it has read all there is."""
    few_rows = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(FEW_ROWS)}
    spark = start_session(master, **few_rows)
    spark.dataSource.register(MortalSource)

    source = spark.readStream.format("kgroup").option("kafka.bootstrap.servers", bootstrap)
    source = source.options(
        subscribe=from_topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(BATCH)
    )
    rows = source.load().select("key", "value")
    sink = rows.writeStream.format("kgroup").option("kafka.bootstrap.servers", bootstrap)
    sink = sink.option("kafka.batch.size", "2000").option("checkpointLocation", checkpoint)
    query = sink.options(topic=to_topic, delivery=delivery).trigger(availableNow=True).start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
