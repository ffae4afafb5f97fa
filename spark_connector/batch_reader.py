"""The batch query: it reads from one place in the topics to another, without a group."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from protocol.frozen import frozen
from protocol.settings import SettingError
from spark_connector.log_offsets import Connect, SubscribedLogs, connect_admin
from spark_connector.options import SourceOptions
from spark_connector.range_reader import read_ranges
from spark_connector.split import Task, plan_ranges, plan_tasks
from spark_connector.stream_offset import Offsets, find_behind


@frozen
class EndOfQuery:
    """The end of a batch query, and the options that say where to commit it."""

    options: SourceOptions
    offsets: Offsets


class LastPartition(InputPartition):
    """A task that carries the end of its query, for the listener on the driver to commit."""

    def __init__(self, task: Task, end: EndOfQuery) -> None:
        super().__init__(task)
        self.end = end


class KgroupBatchReader(DataSourceReader):
    """A reader that plans on the driver and reads on executors. It is pickled in between."""

    def __init__(self, options: SourceOptions, *, connect: Connect = connect_admin) -> None:
        self._options = options
        self._connect = connect

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the tasks.

        Raises SettingError, BrokerError, ClientError.
        """
        # A client for the planning alone: executors make their own.
        with closing(self._connect(self._options.client.cluster_settings)) as brokers:
            log = SubscribedLogs(brokers, self._options, time.monotonic)
            partitions = log.partitions()
            start = log.at(log.starting(partitions))
            end = log.at(log.ending(partitions))
            _check_end(log, end)
        _check_order(self._options, start, end)
        tasks = plan_tasks(
            plan_ranges(start, end),
            min_partitions=self._options.min_partitions,
            max_records=self._options.max_records_per_partition,
            joined_offsets=self._options.joined_task_offsets,
        )
        if self._options.commit_on != "batch-end":
            return [InputPartition(task) for task in tasks]

        # A query that has nothing to read has an end too.
        *others, last = tasks or [()]
        return [*map(InputPartition, others), LastPartition(last, EndOfQuery(self._options, end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a task's ranges. Spark gives a task without one when nothing is planned."""
        yield from read_ranges(self._options, partition.value or ())


def _check_end(log: SubscribedLogs, end: Offsets) -> None:
    """Raise SettingError if the query ends at an offset that is not there yet.

    A task would wait for it.
    """
    position = log.options.end
    for partition, last in find_behind(log.latest(position.offsets), end).items():
        raise SettingError(
            position.option,
            f"ends at offset {end[partition]} of {partition}, whose log ends at {last}",
        )


def _check_order(options: SourceOptions, start: Offsets, end: Offsets) -> None:
    """Raise SettingError if the query ends before it begins."""
    begins, ends = options.start.option, options.end.option
    for partition, offset in find_behind(end, start).items():
        raise SettingError(
            begins,
            f"begins at offset {start[partition]} of {partition}, behind offset {offset}, where "
            f"{ends} ends",
        )
