"""Batches in, records replayed."""

from collections.abc import Iterable

import pytest

from offsets.loader import SLICE_RECORDS, Loader, LoadError
from offsets.records import (
    CommittedOffset,
    Key,
    OffsetKey,
    Record,
    Value,
    encode_key,
    encode_value,
)
from protocol.records.batch import encode_batch
from protocol.records.batch_header import CONTROL, CRC_AT, CRC_COVERS_FROM, TRANSACTIONAL

COMMIT, ABORT = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"


def commit_of(partition: int, offset: int = 1) -> Record:
    return OffsetKey("g", "t", partition), CommittedOffset(offset, -1, "", 5)


def batch(records: Iterable[Record], base_offset: int = 0, producer_id: int = -1) -> bytes:
    rows = [(5, encode_key(key), encode_value(value), ()) for key, value in records]
    return encode_batch(rows, base_offset=base_offset, producer_id=producer_id)


def marked(data: bytes, attributes: int) -> bytes:
    from crc32c import crc32c

    body = bytearray(data)
    body[22] |= attributes
    body[CRC_AT:CRC_COVERS_FROM] = crc32c(body[CRC_COVERS_FROM:]).to_bytes(4, "big")
    return bytes(body)


def marker(kind: bytes, base_offset: int, producer_id: int) -> bytes:
    data = encode_batch([(5, kind, b"", ())], base_offset=base_offset, producer_id=producer_id)
    return marked(data, CONTROL | TRANSACTIONAL)


class Replayed:
    """A loader and what it replayed."""

    def __init__(self, next_offset: int = 0) -> None:
        self.records: list[tuple[Key, Value | None]] = []
        self.loader = Loader(4, lambda key, value: self.records.append((key, value)), next_offset)

    def feed(self, chunk: bytes) -> int:
        return sum(1 for _ in self.loader.feed(chunk))


def test_records_are_replayed_in_log_order_tombstones_too() -> None:
    replayed = Replayed()
    gone: Record = (OffsetKey("g", "t", 0), None)
    replayed.feed(batch([commit_of(0), commit_of(1)]) + batch([gone], 2))
    assert replayed.records == [commit_of(0), commit_of(1), gone]
    assert replayed.loader.next_offset == 3
    assert replayed.loader.records == 3


def test_batch_cut_at_the_end_of_a_read_is_left_for_the_next_one() -> None:
    second = batch([commit_of(1)], 1)
    replayed = Replayed()
    for cut in (10, 61, len(second) - 1):
        replayed = Replayed()
        replayed.feed(batch([commit_of(0)]) + second[:cut])
        assert replayed.records == [commit_of(0)]
        assert replayed.loader.next_offset == 1
    replayed.feed(second)
    assert replayed.records == [commit_of(0), commit_of(1)]


def test_offsets_go_on_behind_what_compaction_removed() -> None:
    replayed = Replayed(next_offset=3)
    replayed.feed(batch([commit_of(0)], 10))
    assert replayed.loader.next_offset == 11


def test_large_batch_is_replayed_in_slices() -> None:
    replayed = Replayed()
    stops = replayed.feed(batch(commit_of(p) for p in range(3 * SLICE_RECORDS + 1)))
    assert stops == 4
    assert len(replayed.records) == 3 * SLICE_RECORDS + 1


def test_corrupt_batch_is_named_by_partition_and_offset() -> None:
    bad = bytearray(batch([commit_of(1)], 17))
    bad[-1] ^= 1
    with pytest.raises(LoadError, match=r"__consumer_offsets-4 at offset 17: .*CRC"):
        Replayed(next_offset=17).feed(bytes(bad))


def test_read_without_one_whole_batch_is_an_error_and_no_endless_loop() -> None:
    data = batch([commit_of(0)])
    for cut in (1, 60, len(data) - 1):
        with pytest.raises(LoadError, match="__consumer_offsets-4 at offset 0"):
            Replayed().feed(data[:cut])


def test_value_of_an_unknown_version_is_named_by_partition_and_offset() -> None:
    rows = [(5, encode_key(commit_of(p)[0]), b"\x00\x09", ()) for p in range(2)]
    with pytest.raises(LoadError, match=r"__consumer_offsets-4 at offset 30: .*version 9"):
        Replayed(next_offset=30).feed(encode_batch(rows, base_offset=30))


def test_offsets_of_a_transaction_count_once_its_marker_commits_them() -> None:
    replayed = Replayed()
    replayed.feed(marked(batch([commit_of(0)], 0, producer_id=9), TRANSACTIONAL))
    replayed.feed(batch([commit_of(1)], 1))
    assert replayed.records == [commit_of(1)]
    replayed.feed(marker(COMMIT, 2, producer_id=9))
    assert replayed.records == [commit_of(1), commit_of(0)]


def test_offsets_of_an_aborted_transaction_never_count() -> None:
    replayed = Replayed()
    replayed.feed(marked(batch([commit_of(0)], 0, producer_id=9), TRANSACTIONAL))
    replayed.feed(marker(ABORT, 1, producer_id=9))
    replayed.feed(marker(COMMIT, 2, producer_id=9))
    assert replayed.records == []
    assert replayed.loader.next_offset == 3
