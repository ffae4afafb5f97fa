"""Rows to record batches: values and order by partition, whatever the columns."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from clients.errors import RecordTooLarge
from clients.producer.partitioner import key_partition
from protocol.records.batch import Record, decode_batch
from protocol.records.compression import Codec
from protocol.topic_partition import TopicPartition
from spark_connector.sink.packing import Packed, Packer
from spark_connector.sink.rows import BadRow, Rows, read_rows

NOW_MS = 1_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def rows(option: str | None = "t", /, **columns: tuple[Sequence[Any], pa.DataType]) -> Rows:
    arrays = {name: pa.array(*column) for name, column in columns.items()}
    return read_rows(pa.RecordBatch.from_pydict(arrays), option, NOW_MS)


def values(*payloads: bytes | None) -> tuple[Sequence[bytes | None], pa.DataType]:
    return payloads, pa.binary()


def packer(batch_bytes: int = 1 << 20, request_bytes: int = 1 << 20) -> Packer:
    return Packer(lambda topic: 3, Codec.NONE, batch_bytes, request_bytes)


def pack(packer: Packer, *batches: Rows) -> dict[TopicPartition, list[Record]]:
    packed: list[Packed] = [p for batch in batches for p in packer.pack(batch)]
    packed += packer.rest()
    by_partition: dict[TopicPartition, list[Record]] = {}
    for partition, builder in packed:
        by_partition.setdefault(partition, []).extend(decode_batch(builder.build()))
    return by_partition


def test_rows_with_only_a_value_keep_their_order_and_fill_one_partition_after_the_other() -> None:
    payloads = [b"%03d" % n for n in range(100)]
    packed = pack(packer(batch_bytes=300), rows(value=values(*payloads)))
    assert sorted(r.value for records in packed.values() for r in records if r.value) == payloads
    assert set(packed) == {TopicPartition("t", n) for n in range(3)}
    for records in packed.values():
        assert [r.value for r in records] == sorted(r.value for r in records if r.value)


def test_batches_go_on_from_one_arrow_batch_to_the_next() -> None:
    once = packer()
    packed = pack(once, rows(value=values(b"a")), rows(value=values(b"b")))
    assert [[r.value for r in records] for records in packed.values()] == [[b"a", b"b"]]
    assert once.rows == 2


def test_equal_keys_go_to_the_partition_that_every_client_gives_them() -> None:
    keys = ([f"k{n % 5}" for n in range(50)], pa.string())
    packed = pack(packer(batch_bytes=120), rows(key=keys, value=values(*[b"v"] * 50)))
    assert sum(map(len, packed.values())) == 50
    for partition, records in packed.items():
        assert {key_partition(r.key or b"", 3) for r in records} == {partition.partition}


def test_a_partition_in_the_data_outranks_the_key_and_null_leaves_it_to_the_key() -> None:
    packed = pack(
        packer(),
        rows(
            key=(["k", "k"], pa.string()),
            value=values(b"1", b"2"),
            partition=([(key_partition(b"k", 3) + 1) % 3, None], pa.int32()),
        ),
    )
    assert sorted(map(len, packed.values())) == [1, 1]


def test_the_option_topic_outranks_the_column() -> None:
    columns = {"value": values(b"1", b"2"), "topic": (["a", "b"], pa.string())}
    assert {p.topic for p in pack(packer(), rows("t", **columns))} == {"t"}
    assert {p.topic for p in pack(packer(), rows(None, **columns))} == {"a", "b"}


def test_rows_with_and_without_keys_mix_in_order() -> None:
    keys = [None if n % 2 else "k" for n in range(200)]
    payloads = [b"%03d" % n for n in range(200)]
    packed = pack(packer(batch_bytes=200), rows(key=(keys, pa.string()), value=values(*payloads)))
    assert sorted(r.value for records in packed.values() for r in records if r.value) == payloads
    for records in packed.values():
        assert [r.value for r in records] == sorted(r.value for r in records if r.value)


def test_nulls_headers_and_timestamps_become_those_of_records() -> None:
    packed = pack(
        packer(),
        rows(
            value=values(None, b""),
            headers=([[{"key": "h", "value": None}, {"key": "i", "value": b"x"}], None], HEADERS),
            timestamp=([1_234_567, None], pa.timestamp("us", "UTC")),
        ),
    )
    ((first, second),) = packed.values()
    assert (first.key, first.value, first.timestamp_ms) == (None, None, 1_234)
    assert list(map(tuple, first.headers)) == [("h", None), ("i", b"x")]
    assert (second.value, second.timestamp_ms, list(second.headers)) == (b"", NOW_MS, [])


def test_a_double_is_seconds_and_a_string_its_bytes() -> None:
    packed = pack(packer(), rows(value=(["\u00e9"], pa.string()), timestamp=([1.5], pa.float64())))
    ((record,),) = packed.values()
    assert (record.value, record.timestamp_ms) == ("\u00e9".encode(), 1_500)


def test_a_header_key_that_is_no_utf_8_is_replaced_as_in_sparks_sink() -> None:
    raw = pa.array([b"\xff"]).view(pa.string())
    structs = pa.StructArray.from_arrays([raw, pa.array([b"x"])], ["key", "value"])
    column = pa.ListArray.from_arrays([0, 1], structs)
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"]), column], ["value", "headers"])
    ((record,),) = pack(packer(), read_rows(batch, "t", NOW_MS)).values()
    assert list(map(tuple, record.headers)) == [("\ufffd", b"x")]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"topic": (["a", None], pa.string())}, "null topic present in the data"),
        ({"partition": ([0, -1], pa.int32())}, "partition -1 in the data is negative"),
        ({"headers": ([[], [None]], HEADERS)}, "a header in the data is null"),
        ({"headers": ([[], [{"key": None, "value": b""}]], HEADERS)}, "has a null key"),
        ({"timestamp": ([0, -1], pa.timestamp("us", "UTC"))}, "before 1970"),
    ],
)
def test_a_row_that_cannot_be_a_record_is_refused(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRow, match=text):
        rows(None, value=values(b"1", b"2"), **{"topic": (["a", "b"], pa.string()), **columns})


@pytest.mark.parametrize("with_key", [False, True])
def test_a_record_larger_than_a_request_is_named_with_what_to_set(with_key: bool) -> None:
    columns = {"value": values(b"1", b"x" * 500)}
    if with_key:
        columns["key"] = ([b"k", b"k"], pa.binary())
    with pytest.raises(
        RecordTooLarge, match=r"^t-[012]: a record of 5\d\d bytes .* 400: set kafka"
    ):
        pack(packer(batch_bytes=100, request_bytes=400), rows(**columns))
