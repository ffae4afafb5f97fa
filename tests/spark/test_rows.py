from datetime import UTC, datetime

import pyarrow as pa

from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from spark_connector.row_columns import row_columns
from spark_connector.rows import ROWS_PER_BATCH, record_batches

T3 = TopicPartition("t", 3)


def batches(*records: Record, include_headers: bool = True) -> list[pa.RecordBatch]:
    return list(record_batches(T3, records, 1, row_columns(include_headers)))


def test_a_record_becomes_a_row_of_sparks_kafka_source() -> None:
    (batch,) = batches(Record(7, 1_500, b"k", b"v", (("a", b"1"), ("b", None))))
    assert batch.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": "t",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime.fromtimestamp(1.5, UTC),
            "timestampType": 1,
            "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        }
    ]


def test_no_key_no_value_and_no_headers_are_nulls() -> None:
    (batch,) = batches(Record(7, 1_500, None, None, ()))
    (row,) = batch.to_pylist()
    assert (row["key"], row["value"], row["headers"]) == (None, None, None)


def test_no_batch_is_longer_than_the_bound_and_none_is_empty() -> None:
    records = [Record(n, 0, None, None, ()) for n in range(ROWS_PER_BATCH + 1)]
    assert [batch.num_rows for batch in batches(*records)] == [ROWS_PER_BATCH, 1]
    assert batches() == []
