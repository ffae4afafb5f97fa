"""Fetched batches by columns: the same rows, positions and errors as one by one."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import pack

import pyarrow as pa
import pytest
from crc32c import crc32c

from clients.errors import BrokerError
from protocol.messages.fetch import FetchResponseAbortedTransaction, FetchResponsePartition
from protocol.records.batch import HEADER_BYTES, encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.builder import NewRecord
from protocol.records.compression import Codec
from protocol.records.control_record import ABORT, COMMIT, encode_marker
from protocol.records.legacy import encode_messages
from protocol.topic_partition import TopicPartition
from spark_connector import fetched_batches
from spark_connector.columns import read_columns
from spark_connector.fetched_batches import decode_response
from spark_connector.row_columns import row_columns
from spark_connector.rows import ROWS_PER_BATCH, FetchedBatches

T3 = TopicPartition("t", 3)
NAMES = row_columns(False)
NOW_MS = 1_700_000_000_000
LEAST_MS = -(2**40)
STORIES = 3000
"""Random responses that are read both ways."""


def response(
    records: bytes, aborted: Sequence[tuple[int, int]] = (), error_code: int = 0
) -> FetchResponsePartition:
    """Return a response with the (producer id, first offset) of aborted transactions."""
    return FetchResponsePartition(
        partition_index=3,
        error_code=error_code,
        high_watermark=1_000_000,
        aborted_transactions=[
            FetchResponseAbortedTransaction(producer_id=producer_id, first_offset=first)
            for producer_id, first in aborted
        ],
        records=memoryview(records),
    )


def signed(batch: bytes | bytearray) -> bytes:
    """Return a changed batch with its right length and CRC."""
    changed = bytearray(batch)
    changed[8:12] = pack(">i", len(changed) - 12)
    changed[17:21] = pack(">I", crc32c(bytes(changed[21:])))
    return bytes(changed)


def by_columns(
    records: bytes, start: int = 0, end: int = 1_000_000, names: Sequence[str] = NAMES
) -> FetchedBatches | None:
    return read_columns(T3, response(records), start, end, names)


def table(fetched: FetchedBatches | None) -> pa.Table:
    assert fetched is not None
    for batch in fetched.batches:
        batch.validate(full=True)
    return pa.Table.from_batches(fetched.batches)


# ---- the same as by rows


def outcome(
    given: FetchResponsePartition, start: int, end: int, names: Sequence[str]
) -> tuple[object, ...]:
    """Return all there is to see: rows and position, or the error."""
    try:
        fetched = decode_response(T3, given, start, end, names)
    except BrokerError as error:
        return error.code, str(error)
    for batch in fetched.batches:
        batch.validate(full=True)
        assert batch.num_rows <= ROWS_PER_BATCH
    rows = [row for batch in fetched.batches for row in batch.to_pylist()]
    return fetched.next_offset, rows, fetched.damage


def without_columns(
    monkeypatch: pytest.MonkeyPatch,
    given: FetchResponsePartition,
    start: int,
    end: int,
    names: Sequence[str],
) -> tuple[object, ...]:
    with monkeypatch.context() as patched:
        patched.setattr(fetched_batches, "_columns_reader", lambda: None)
        return outcome(given, start, end, names)


def random_record(rng: random.Random, spread_ms: int, headers: bool) -> NewRecord:
    size = rng.choice([0, 1, 5, 63, 64, 100, 8191 if rng.random() < 0.05 else 30])
    return (
        max(LEAST_MS, NOW_MS + rng.randint(-spread_ms, spread_ms)),
        None if rng.random() < 0.3 else rng.randbytes(rng.choice([0, 4, 70])),
        None if rng.random() < 0.1 else rng.randbytes(size),
        (("h", b"x"), ("n", None)) if headers and rng.random() < 0.5 else (),
    )


def random_log(rng: random.Random) -> tuple[bytes, list[tuple[int, int]]]:
    """Return batches from offset 100 on, and the (producer id, first offset) of aborted ones."""
    log = b""
    offset = 100
    aborted = []
    log_append_time = rng.random() < 0.2
    with_headers = rng.random() < 0.2
    for _ in range(rng.randint(1, 12)):
        # Regular records, or such as differ in all fields.
        count = rng.choice([1, 2, 7, 60, 200])
        if rng.random() < 0.3:
            value = rng.randbytes(100)
            records: list[NewRecord] = [(NOW_MS + n, None, value, ()) for n in range(count)]
        else:
            spread_ms = rng.choice([0, 50, 10_000, 2**33, 2**47])
            records = [random_record(rng, spread_ms, with_headers) for _ in range(count)]

        is_transactional = rng.random() < 0.2
        producer_id = rng.randint(1, 3) if is_transactional else -1
        batch = encode_batch(
            records,
            base_offset=offset,
            codec=rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD]),
            timestamp_type=int(log_append_time),
            producer_id=producer_id,
            flags=TRANSACTIONAL if is_transactional else 0,
        )
        first_offset, offset = offset, offset + count

        if rng.random() < 0.1:
            # Compaction has removed the last records, or all of them.
            bigger = bytearray(batch)
            if rng.random() < 0.5:
                del bigger[HEADER_BYTES:]
                bigger[57:61] = pack(">i", 0)
            bigger[23:27] = pack(">i", count - 1 + 5)
            batch = signed(bigger)
            offset += 5
        log += batch

        if is_transactional:
            is_aborted = rng.random() < 0.5
            if is_aborted:
                aborted.append((producer_id, first_offset))
            log += encode_marker(
                ABORT if is_aborted else COMMIT,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                timestamp_ms=NOW_MS,
                base_offset=offset,
            )
            offset += 1
        elif rng.random() < 0.03:
            old = [(offset + n, NOW_MS, b"k", b"old", ()) for n in range(3)]
            log += encode_messages(old, magic=rng.choice([0, 1]))
            offset += 3
        offset += rng.choice([0, 0, 0, 4])

    return log, aborted


def damaged(rng: random.Random, log: bytes) -> bytes:
    """Change a byte; the CRC of a first batch may be right again."""
    changed = bytearray(log)
    at = rng.randrange(len(log))
    changed[at] ^= 1 << rng.randrange(8)
    size = int.from_bytes(log[8:12], "big") + 12
    if rng.random() < 0.5 and at >= HEADER_BYTES and at < size:
        changed[17:21] = pack(">I", crc32c(bytes(changed[21:size])))
    return bytes(changed)


@pytest.mark.parametrize("part", range(10))
def test_random_responses_are_read_as_one_by_one(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_by_columns = 0
    for seed in range(part * STORIES // 10, (part + 1) * STORIES // 10):
        rng = random.Random(seed)
        log, aborted = random_log(rng)
        if rng.random() < 0.2:
            log = log[: rng.randint(1, len(log))]
        if rng.random() < 0.15:
            log = damaged(rng, log)
        given = response(log, aborted if rng.random() < 0.7 else ())
        start = rng.choice([100, 101, 130, 400])
        end = rng.choice([101, 150, 500, 10**6])
        names = row_columns(rng.random() < 0.2)

        expected = without_columns(monkeypatch, given, start, end, names)
        assert outcome(given, start, end, names) == expected, f"seed {seed}"
        taken_by_columns += read_columns(T3, given, start, end, names) is not None
    assert taken_by_columns > STORIES // 10 // 2


# ---- what goes by columns


def encode(*records: NewRecord, base_offset: int = 0, codec: Codec = Codec.NONE) -> bytes:
    return encode_batch(records, base_offset=base_offset, codec=codec)


def test_null_and_empty_keys_and_values_differ() -> None:
    log = encode((5, None, b"v", ()), (3, b"", None, ()), (5, b"k", b"", ()))
    rows = table(by_columns(log)).to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(None, b"v"), (b"", None), (b"k", b"")]


def test_batches_of_all_codecs_are_read_together() -> None:
    codecs = list(Codec)
    log = b"".join(
        encode((0, None, codec.name.encode() * 50, ()), base_offset=n, codec=codec)
        for n, codec in enumerate(codecs)
    )
    fetched = by_columns(log)
    values = table(fetched)["value"].to_pylist()
    assert values == [codec.name.encode() * 50 for codec in codecs]
    assert fetched is not None
    assert len(fetched.batches) == 1


def test_only_the_columns_asked_for_are_built_in_sparks_order() -> None:
    fetched = by_columns(encode((0, b"k", b"v", ())), names=("offset", "value"))
    assert table(fetched).to_pydict() == {"value": [b"v"], "offset": [0]}
    assert table(fetched).column_names == ["value", "offset"]


def test_headers_go_by_columns_only_if_nobody_wants_them() -> None:
    log = encode((0, b"k", b"v", (("h", b"x" * 300),)), (0, None, b"w", ()))
    assert table(by_columns(log))["value"].to_pylist() == [b"v", b"w"]
    assert by_columns(log, names=row_columns(True)) is None


def test_each_batch_has_the_kind_of_its_own_timestamps() -> None:
    created = encode((7, None, b"v", ()), (3, None, b"v", ()))
    appended = encode_batch([(9, None, b"v", ())] * 2, base_offset=2, timestamp_type=1)
    rows = table(by_columns(created + appended)).to_pylist()
    assert [row["timestampType"] for row in rows] == [0, 0, 1, 1]
    assert [row["timestamp"].timestamp() for row in rows] == [0.007, 0.003, 0.009, 0.009]


def test_tiny_records_come_in_batches_of_bounded_rows() -> None:
    log = encode(*[(0, None, None, ())] * (ROWS_PER_BATCH + 1))
    fetched = by_columns(log)
    assert fetched is not None
    assert [batch.num_rows for batch in fetched.batches] == [ROWS_PER_BATCH, 1]
    assert table(fetched)["offset"].to_pylist() == list(range(ROWS_PER_BATCH + 1))


@pytest.mark.parametrize("fault", ["crc", "old format", "record beyond its batch", "part"])
def test_what_is_wrong_or_unusual_is_left_to_the_rows(fault: str) -> None:
    good = encode((0, b"k", b"v", ()), (0, b"k", b"v", ()))
    if fault == "crc":
        bad = good[:-3] + b"!" + good[-2:]
    elif fault == "old format":
        bad = encode_messages([(0, 0, b"k", b"v", ())], magic=1)
    elif fault == "record beyond its batch":
        bad = signed(good[:23] + pack(">i", 0) + good[27:])
    else:
        bad = good[:-1]
    assert by_columns(bad) is None


def test_a_timestamp_that_spark_cannot_hold_is_an_error_both_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = response(encode((2**60, None, b"v", ())))
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        outcome(given, 0, 10, NAMES)
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        without_columns(monkeypatch, given, 0, 10, NAMES)
