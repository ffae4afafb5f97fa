"""The writers of the sink: they are made on Spark's driver, and write in its tasks.

What Spark calls (PySpark 4.3): for each batch of a stream it makes a writer and sends it, pickled,
to the tasks, which call `write`. When all tasks are done it makes another writer, for `commit`.
"""

import logging
import random
import time
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from clients.producer.partitioner import partition_rule
from protocol.frozen import frozen
from protocol.records.compression import Codec
from protocol.special_values import LATEST_TIME
from protocol.topic_partition import TopicPartition
from spark_connector.log_offsets import Brokers, connect_admin
from spark_connector.sink import once
from spark_connector.sink.columns import check_columns
from spark_connector.sink.once import Content, Found, Offsets, TaskIdentity, TaskNumbers
from spark_connector.sink.options import SinkOptions
from spark_connector.sink.packing import Packer, Skip
from spark_connector.sink.reading_back import read_back, read_log_ends, read_written
from spark_connector.sink.rows import read_rows
from spark_connector.sink.sending import ABORT_MS, Sending, keep_sending, take_sending

logger = logging.getLogger(__name__)

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
"""Spark's local properties of a task that belongs to a stream."""


@frozen
class WrittenRows(WriterCommitMessage):
    """The report of a task: the number of rows that it has written, and the stream's query."""

    rows: int
    query_id: str | None = None


class SaveModeRefused(ValueError):
    """The save mode of a batch query cannot be meant for a topic."""


class KgroupBatchWriter(DataSourceArrowWriter):
    """A writer of a batch query. With `delivery=once` tasks that run again write nothing twice."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        check_columns(schema, options.topic)
        if overwrite:
            raise SaveModeRefused(
                "Save mode overwrite not allowed for Kafka. Allowed save mode is append: "
                'write it as .mode("append")'
            )
        self._options = options

        # A batch query has no id that its next run would know.
        self._query_id = uuid4().hex
        self._ends = _list_ends(options) if options.is_once else {}
        self._log_ends = list_log_ends(options) if options.is_once else {}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task. Raises WriteFailed, BadRow, NotRepeatable."""
        if not self._options.is_once:
            return WrittenRows(write_rows(self._options, iterator))

        context = _task_context()
        task = TaskIdentity(self._query_id, 0, context.partitionId())
        return WrittenRows(_write_once(self._options, iterator, task, self._ends, self._log_ends))


class KgroupStreamWriter(DataSourceStreamArrowWriter):
    """A writer of a streaming query, for one batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options.topic)
        self._options = options

        # Before the batch for its tasks, and behind it for the commit.
        # The former go with the high watermarks: a leader may lose what is above.
        self._ends = _list_ends(options) if options.is_once else {}
        self._log_ends = list_log_ends(options) if options.is_once else {}

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of a task. Raises WriteFailed, BadRow, NotRepeatable."""
        if not self._options.is_once:
            return WrittenRows(write_rows(self._options, iterator))

        context = _task_context()
        query_id = context.getLocalProperty(QUERY_ID)
        batch_id = context.getLocalProperty(BATCH_ID)
        assert query_id is not None
        assert batch_id is not None
        task = TaskIdentity(query_id, int(batch_id), context.partitionId())

        # Where the logs ended before the batch, unless it is done already.
        start = self._begin(task)
        if start is None:
            return WrittenRows(0, query_id)
        rows = _write_once(self._options, iterator, task, start, self._log_ends)
        return WrittenRows(rows, query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit that a batch is done to the query's group. Raises KgroupError."""
        query_ids = {m.query_id for m in messages if isinstance(m, WrittenRows) and m.query_id}
        if not query_ids:
            return

        (query_id,) = query_ids
        with closing(connect_admin(self._options.cluster_settings)) as brokers:
            group = once.group_of(query_id)
            brokers.commit_group_offsets(group, once.commit_of(batchId, self._ends))

    def _begin(self, task: TaskIdentity) -> Offsets | None:
        """Return where the logs ended before the batch; None if the batch is done."""
        group = once.group_of(task.query_id)
        with closing(connect_admin(self._options.cluster_settings)) as brokers:
            committed = brokers.group_offsets(group, self._ends)

            # The query's first batch; tasks that do the same commit the same.
            if not committed:
                brokers.commit_group_offsets(group, once.first_commit(self._ends))
                return self._ends

        if once.last_done(committed.values()) >= task.batch_id:
            logger.warning("group %s: batch %d was written already", group, task.batch_id)
            return None
        return {partition: place.offset for partition, place in committed.items()}


def write_rows(
    options: SinkOptions,
    iterator: Iterator[pa.RecordBatch],
) -> int:
    """Write the rows of a task with the worker's producer; return their number."""
    sending = take_sending(options.producer)
    try:
        rows = _send_all(options, iterator, sending)
    except BaseException:
        sending.close(ABORT_MS)
        raise

    keep_sending(sending)
    return rows


def _write_once(
    options: SinkOptions,
    iterator: Iterator[pa.RecordBatch],
    task: TaskIdentity,
    start: Offsets,
    ends_before: Offsets,
) -> int:
    """Write those rows of a task that are not in the log; return their number.

    `start` is before all that attempts of the task can have written, `ends_before` behind what
    those of earlier runs of the query have.
    """
    config = options.producer_config
    ends_now = list_log_ends(options)
    attempt = _task_context().attemptNumber()
    found = read_back(config, task, start, ends_now if attempt else ends_before)
    content = Content()
    size = once.batch_bytes(config.batch_size, attempt, random.random())

    # A producer of its own: the numbers are the task's.
    sending = Sending(options.producer)
    try:
        sending.use_numbers(
            TaskNumbers(
                producer_id=task.producer_id,
                epoch=task.epoch,
                next_by_partition=dict(found.next_by_partition),
            )
        )
        skip = found.take if found.rows else None
        rows = _send_all(options, iterator, sending, skip, content, size)
        once.require_fresh(sending.delivered, ends_now, task)
        found.require_all_met(task)

        # An attempt that overlaps may have written other rows with our numbers, which a broker
        # took for ours (fault core-R2).
        _require_written(options, task, content, found, sending)
    except BaseException:
        sending.close(ABORT_MS)
        raise

    sending.close()
    return rows


def _require_written(
    options: SinkOptions, task: TaskIdentity, content: Content, found: Found, sending: Sending
) -> None:
    """Raise NotRepeatable if the log has other rows than the task has written and found."""
    if not sending.delivered:
        return
    written = read_written(options.producer_config, task, sending.delivered)
    if written is not None:
        once.require_written(content, written + found.content, task)


def _send_all(
    options: SinkOptions,
    iterator: Iterator[pa.RecordBatch],
    sending: Sending,
    skip: Skip | None = None,
    content: Content | None = None,
    batch_size: int | None = None,
) -> int:
    """Send the rows of a task, and note in `content` what all of them hold."""
    config = sending.producer.config
    packer = Packer(
        sending.count_partitions,
        Codec.of_name(config.compression_type),
        min(batch_size or config.batch_size, config.max_request_size, config.buffer_memory),
        config.max_request_size,
        partition_rule(config.partitioner),
        _first_partition(),
    )

    for batch in iterator:
        if batch.num_rows:
            rows = read_rows(batch, options.topic, time.time_ns() // 1_000_000)
            if content is not None:
                content.add(rows.keys, rows.values, rows.headers)
            sending.send(packer.pack(rows, skip))

    sending.send(packer.rest())
    sending.finish()
    return packer.rows


def _first_partition() -> int:
    """Return where a task begins: neighbours begin with different partitions."""
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0


def _task_context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _list_ends(options: SinkOptions) -> dict[TopicPartition, int]:
    """Return where the topic's logs end. Raises KgroupError."""
    assert options.topic is not None
    with closing(connect_admin(options.cluster_settings)) as brokers:
        return list_ends(brokers, options.topic)


def list_log_ends(options: SinkOptions) -> dict[TopicPartition, int]:
    """Return where the logs end, with what not all replicas have yet. Raises KgroupError."""
    ends = _list_ends(options)
    # What an attempt before has written may be above the high watermark (fault core-R2).
    ends |= read_log_ends(options.producer_config, list(ends))
    return ends


def list_ends(brokers: Brokers, topic: str) -> dict[TopicPartition, int]:
    """Return where a topic's logs end. Raises KgroupError."""
    described = brokers.describe_topics([topic])[topic]
    times = {TopicPartition(topic, index): LATEST_TIME for index in described.partitions}
    return {partition: listed.offset for partition, listed in brokers.list_offsets(times).items()}
