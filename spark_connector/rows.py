"""Records as Spark's rows: the columns of its Kafka source, built as Arrow arrays.

A record without headers has null headers, as in that source.
"""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from protocol.frozen import frozen
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from spark_connector.damage import Damage

ROWS_PER_BATCH = 65_536
"""Bound on the rows of one Arrow batch: Spark need not hold a whole fetch of tiny records twice."""

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
        ("headers", _HEADERS),
    ]
)


@frozen
class FetchedBatches:
    """The records of one fetch, and the offset at which the next one begins."""

    batches: Sequence[pa.RecordBatch]
    next_offset: int
    size: int
    """Bytes that the broker sent."""
    damage: Damage | None = None
    """Why the batch at `next_offset` cannot be read; there are no records before it then."""


def arrow_schema(names: Collection[str]) -> pa.Schema:
    """Return these columns, in Spark's order."""
    return pa.schema([field for field in _SCHEMA if field.name in names])


def record_batches(
    partition: TopicPartition,
    records: Sequence[Record],
    timestamp_type: int,
    names: Collection[str],
) -> Iterator[pa.RecordBatch]:
    """Yield these columns of the records of one partition as Arrow batches of bounded size."""
    for start in range(0, len(records), ROWS_PER_BATCH):
        rows = records[start : start + ROWS_PER_BATCH]
        yield _record_batch(partition, rows, timestamp_type, names)


def _record_batch(
    partition: TopicPartition,
    rows: Sequence[Record],
    timestamp_type: int,
    names: Collection[str],
) -> pa.RecordBatch:
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)

    # Only the columns that are asked for.
    columns = []
    schema = arrow_schema(names)
    for name in schema.names:
        match name:
            case "key":
                column = pa.array(keys, pa.binary())
            case "value":
                column = pa.array(values, pa.binary())
            case "topic":
                column = pa.repeat(pa.scalar(partition.topic), len(rows))
            case "partition":
                column = pa.repeat(pa.scalar(partition.partition, pa.int32()), len(rows))
            case "offset":
                column = pa.array(offsets, pa.int64())
            case "timestamp":
                # Kafka's times are in milliseconds, Spark's in microseconds.
                column = pa.array(timestamps, pa.timestamp("ms", "UTC")).cast(_MICROSECONDS)
            case "timestampType":
                column = pa.repeat(pa.scalar(timestamp_type, pa.int32()), len(rows))
            case _:
                assert name == "headers"
                column = pa.array([pairs or None for pairs in headers], _HEADERS)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
