"""A query from topic to topic, which is killed where the files of a directory say.

    python -m tests.spark.sink.killed_query BOOTSTRAP FROM TO CHECKPOINT FAULTS DELIVERY MASTER

A file STEP-BATCH in FAULTS kills once, with SIGKILL, at that step of that batch: `task` the Python
worker of a task that has written a part of its rows, `executor` the JVM above it; `driver` the
driver in the same moment, `uncommitted` before the sink commits the batch, and `committed` between
that and Spark's own commit.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_connector.log_offsets import connect_admin
from spark_connector.sink.options import SinkOptions, read_sink_options
from spark_connector.sink.writer import BATCH_ID, KgroupStreamWriter, list_ends
from spark_connector.source import KgroupDataSource
from tests.stage.processes import ROOT
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
        if _is_due(f"uncommitted-{batchId}"):
            _kill_driver()
        super().commit(messages, batchId)
        if _is_due(f"committed-{batchId}"):
            _kill_driver()


def _die_halfway(
    options: SinkOptions, iterator: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    batch_id = context.getLocalProperty(BATCH_ID)
    written = _count_records(options)

    for number, batch in enumerate(iterator):
        yield batch
        if number < PART:
            continue

        for step in ("task", "executor", "driver"):
            if _is_due(f"{step}-{batch_id}"):
                # What was sent is written by now, in part.
                block_until(lambda: _count_records(options) > written, "the first rows")
                if step == "driver":
                    _kill_driver()
                if step == "executor":
                    # The worker's parent is Spark's daemon, and that one's the executor.
                    os.kill(_parent_of(os.getppid()), signal.SIGKILL)
                os.kill(os.getpid(), signal.SIGKILL)


def _count_records(options: SinkOptions) -> int:
    assert options.topic is not None
    with closing(connect_admin(options.cluster_settings)) as brokers:
        return sum(list_ends(brokers, options.topic).values())


def _is_due(fault: str) -> bool:
    try:
        (Path(os.environ["FAULTS"]) / fault).unlink()
    except FileNotFoundError:
        return False
    return True


def _kill_driver() -> None:
    os.kill(int((Path(os.environ["FAULTS"]) / "driver.pid").read_text()), signal.SIGKILL)
    signal.pause()


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main(
    bootstrap: str,
    from_topic: str,
    to_topic: str,
    checkpoint: str,
    faults: str,
    delivery: str,
    master: str,
) -> None:
    """Run the query until it has read all there is."""
    os.environ |= {"FAULTS": faults, "PYSPARK_PYTHON": sys.executable}
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", FEW_ROWS)
        # Executors of their own work in another directory.
        .config("spark.executorEnv.PYTHONPATH", str(ROOT))
        .config("spark.executorEnv.FAULTS", faults)
        .getOrCreate()
    )
    driver = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    (Path(faults) / "driver.pid").write_text(str(driver))
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
