"""The loader: batches in, records replayed."""

from collections.abc import Iterable

import pytest

from groups.coordinator.shard import GroupShard
from groups.runtime.loader import SLICE_RECORDS, Loader, LoadError
from groups.runtime.shard import EncodedRecord
from offsets.committed import CommittedOffsets
from offsets.records import (
    CommittedOffset,
    Key,
    OffsetKey,
    Record,
    Value,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from protocol.records.batch import Codec, encode_batch
from protocol.records.batch_header import (
    CONTROL,
    CRC_AT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from protocol.records.legacy import encode_messages
from protocol.topic_partition import TopicPartition

OLD_FORMATS = (0, 1)
KEY = OffsetKey("g", "t", 0)
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


def emptied(data: bytes) -> bytes:
    """The batch as compaction leaves it when its records are gone."""
    header = bytearray(data[:HEADER_BYTES])
    header[8:12] = (HEADER_BYTES - LOG_OVERHEAD).to_bytes(4, "big")
    header[57:61] = bytes(4)
    return marked(bytes(header), 0)


class Recorder(CommittedOffsets):
    """A shard that keeps the records that count, in their order."""

    records: list[tuple[Key, Value | None]]

    def replay(self, records: Iterable[EncodedRecord]) -> list[EncodedRecord]:
        for key, value in records:
            decoded = decode_key(key)
            self.records.append((decoded, decode_value(decoded, value)))
        return []


class Replayed:
    """A loader, and what it replayed into a shard of groups."""

    def __init__(self, next_offset: int = 0) -> None:
        recorder = Recorder()
        recorder.records = self.records = []
        name = TopicPartition("__consumer_offsets", 4)
        self.loader = Loader(name, GroupShard(offsets=recorder), next_offset)

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


def test_plain_commit_behind_that_of_an_open_transaction_stays() -> None:
    replayed = Replayed()
    replayed.feed(
        marked(batch([commit_of(0, 1), commit_of(1, 1)], 0, producer_id=9), TRANSACTIONAL)
    )
    replayed.feed(batch([commit_of(0, 2)], 2))
    replayed.feed(marker(COMMIT, 3, producer_id=9))
    assert replayed.records == [commit_of(0, 2), commit_of(1, 1)]


@pytest.mark.parametrize("first_to_end", [8, 9])
def test_latest_commit_of_two_transactions_stays_whichever_ends_first(first_to_end: int) -> None:
    replayed = Replayed()
    replayed.feed(marked(batch([commit_of(0, 10)], 0, producer_id=8), TRANSACTIONAL))
    replayed.feed(marked(batch([commit_of(0, 20)], 1, producer_id=9), TRANSACTIONAL))
    replayed.feed(marker(COMMIT, 2, producer_id=first_to_end))
    replayed.feed(marker(COMMIT, 3, producer_id=8 + 9 - first_to_end))
    assert replayed.records[-1] == commit_of(0, 20)


def test_marker_that_compaction_took_ends_nothing() -> None:
    replayed = Replayed()
    replayed.feed(marked(batch([commit_of(0)], 0, producer_id=9), TRANSACTIONAL))
    replayed.feed(emptied(marker(ABORT, 1, producer_id=9)))
    replayed.feed(marker(COMMIT, 2, producer_id=9))
    assert replayed.records == [commit_of(0)]


@pytest.mark.parametrize("magic", OLD_FORMATS)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_messages_of_older_brokers_are_replayed(magic: int, codec: Codec) -> None:
    records = map(commit_of, range(3))
    rows = [
        (n, 5, encode_key(key), encode_value(value), ()) for n, (key, value) in enumerate(records)
    ]
    replayed = Replayed()
    replayed.feed(encode_messages(rows, magic=magic, codec=codec) + batch([commit_of(3)], 3))
    assert replayed.records == [commit_of(p) for p in range(4)]
    assert replayed.loader.next_offset == 4


def test_compressed_batches_are_replayed_among_plain_ones() -> None:
    rows = [(5, encode_key(key), encode_value(value), ()) for key, value in [commit_of(1)]]
    compressed = encode_batch(rows, base_offset=1, codec=Codec.GZIP)
    replayed = Replayed()
    replayed.feed(batch([commit_of(0)]) + compressed + batch([commit_of(2)], 2))
    assert replayed.records == [commit_of(0), commit_of(1), commit_of(2)]


def test_many_batches_that_are_not_plain_are_replayed_in_slices() -> None:
    rows = [(5, encode_key(key), encode_value(value), ()) for key, value in [commit_of(1)]]
    count = SLICE_RECORDS
    batches = [encode_batch(rows, base_offset=n, codec=Codec.GZIP) for n in range(count)]
    assert 4 < Replayed().feed(b"".join(batches)) < 20


def test_many_small_batches_share_a_slice() -> None:
    batches = [batch([commit_of(n)], n) for n in range(2 * SLICE_RECORDS)]
    replayed = Replayed()
    assert replayed.feed(b"".join(batches)) == 2
    assert len(replayed.records) == len(batches)


def test_record_without_a_key_is_named_by_partition_and_offset() -> None:
    rows = [(5, key, encode_value(commit_of(0)[1]), ()) for key in (encode_key(KEY), None)]
    with pytest.raises(LoadError, match=r"__consumer_offsets-4 at offset 8: .*without a key"):
        Replayed(next_offset=7).feed(encode_batch(rows, base_offset=7))


def test_corrupt_record_among_many_batches_is_the_one_that_is_named() -> None:
    batches = [batch([commit_of(n)], n) for n in range(50)]
    bad = [(5, encode_key(KEY), b"\x00\x63", ())]
    batches[30] = encode_batch(bad, base_offset=30)
    replayed = Replayed()
    with pytest.raises(LoadError, match=r"at offset 30: offset value of unknown version 99"):
        replayed.feed(b"".join(batches))
