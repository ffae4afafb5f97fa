"""The batch query: from one place in the topics to another, no group involved in the reading."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_connector.log_offsets import Connect, LogOffsets, connect_admin, data_lost
from spark_connector.options import SourceOptions
from spark_connector.range_reader import read_range
from spark_connector.split import OffsetRange, ranges
from spark_connector.stream_offset import Offsets, at_least, behind


class KgroupBatchReader(DataSourceReader):
    """Plans on the driver, reads on executors; it is pickled in between, so it keeps nothing."""

    def __init__(self, options: SourceOptions, *, connect: Connect = connect_admin) -> None:
        self._options = options
        self._connect = connect

    def partitions(self) -> Sequence[InputPartition]:
        """A task for each partition with records. Raises DataLoss, ValueError, ApiError."""
        with closing(self._connect(self._options.client.cluster_settings)) as brokers:
            log = LogOffsets(brokers, self._options)
            partitions = log.partitions()
            start = log.at(log.starting(partitions))
            end = log.at(log.ending(partitions))
            return plan(log, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range. Spark gives a task without one when nothing is planned."""
        if isinstance(partition.value, OffsetRange):
            yield from read_range(self._options, partition.value)


def plan(log: LogOffsets, start: Offsets, end: Offsets) -> list[InputPartition]:
    """A task for each partition with something to read between two places.

    Raises ValueError for an end before its start: that is never the same as nothing to read.
    DataLoss if records in between are gone.
    """
    for partition, offset in behind(end, start).items():
        raise ValueError(
            f"{partition} is to be read from offset {start[partition]} to {offset}: the log was "
            "cut or made anew, or the query began at another place than it was planned for"
        )
    wanted = ranges(start, end)
    earliest = log.earliest([r.partition for r in wanted])
    for partition, offset in behind(start, earliest).items():
        gone = f"{partition}: offsets {offset} to {earliest[partition] - 1} have been deleted"
        data_lost(gone, fail=log.options.fail_on_data_loss)
    return [InputPartition(r) for r in ranges(at_least(start, earliest), end)]
