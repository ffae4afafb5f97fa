"""Records as Spark's rows: the columns of its Kafka source, built as Arrow arrays.

A record without headers has null headers, as in that source.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition

ROWS_PER_BATCH = 16_384
"""Bound on the rows of one Arrow batch: Spark need not hold a whole fetch of tiny records twice."""

COLUMNS = (
    "key binary, value binary, topic string, partition int, offset long, "
    "timestamp timestamp, timestampType int"
)
HEADERS = "headers array<struct<key string, value binary>>"

_MICROSECONDS = pa.timestamp("us", "UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _MICROSECONDS),
        ("timestampType", pa.int32()),
    ]
)


def schema(include_headers: bool) -> str:
    """Return the row's columns, as Spark's DDL."""
    return f"{COLUMNS}, {HEADERS}" if include_headers else COLUMNS


def record_batches(
    partition: TopicPartition,
    records: Sequence[Record],
    timestamp_type: int,
    *,
    include_headers: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of one partition, in order, as Arrow batches of bounded size."""
    for start in range(0, len(records), ROWS_PER_BATCH):
        rows = records[start : start + ROWS_PER_BATCH]
        yield _record_batch(partition, rows, timestamp_type, include_headers)


def _record_batch(
    partition: TopicPartition, rows: Sequence[Record], timestamp_type: int, include_headers: bool
) -> pa.RecordBatch:
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)

    # Kafka's times are in milliseconds, Spark's in microseconds.
    milliseconds = pa.array(timestamps, pa.timestamp("ms", "UTC"))

    # One column after the other, in the order of COLUMNS.
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.repeat(pa.scalar(partition.topic), len(rows)),
        pa.repeat(pa.scalar(partition.partition, pa.int32()), len(rows)),
        pa.array(offsets, pa.int64()),
        milliseconds.cast(_MICROSECONDS),
        pa.repeat(pa.scalar(timestamp_type, pa.int32()), len(rows)),
    ]
    if not include_headers:
        return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    columns.append(pa.array([record_headers or None for record_headers in headers], _HEADERS))
    return pa.RecordBatch.from_arrays(columns, schema=_SCHEMA.append(pa.field("headers", _HEADERS)))
