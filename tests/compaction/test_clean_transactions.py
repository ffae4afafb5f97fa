"""Transactions and producers: what goes at once, what waits, and what is kept for a number."""

from __future__ import annotations

import pytest

from compaction.job import NO_DATA
from compaction.source import LEAST_READ_BYTES
from compaction.transactions import CleanedTransactions
from core_log.config import LogConfig
from core_log.segments.segment import Segment
from core_log.segments.transaction_index import AbortedTransaction
from protocol.records.batch import decode_batch, encode_batch
from protocol.records.batch_header import TRANSACTIONAL
from protocol.records.compression import Codec
from tests.compaction.partition import ABORT, COMMIT, DAY_MS, T0, Pair, Partition, changed

NEXT_DAY = T0 + DAY_MS


def append_produced(partition: Partition, producer_id: int, sequence: int, *pairs: Pair) -> int:
    """Append a batch of an idempotent producer, and remember it as its last one."""
    partition.producers[producer_id] = partition.append(
        *pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )
    return partition.producers[producer_id]


def test_last_batch_of_each_producer_stays_without_records() -> None:
    partition = Partition()
    for producer_id in (1, 2, 3):
        append_produced(partition, producer_id, 0, (b"a", b"1"), (b"b", b"1"))
    partition.append((b"a", b"2"), (b"b", b"2"))
    partition.roll()
    partition.clean()
    assert (partition.batch_ends(), partition.offsets()) == ([1, 3, 5, 7], [6, 7])
    assert [header.count for header in partition.headers()] == [0, 0, 0, 2]


def test_numbers_a_producer_would_send_again_are_kept_with_an_empty_batch() -> None:
    partition = Partition()
    append_produced(partition, 7, 40, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    partition.roll()
    (before,) = partition.headers()
    partition.append((b"a", b"2"), (b"b", b"2"), (b"c", b"2"))
    partition.roll()
    partition.clean()
    after = partition.headers()[0]
    assert after._replace(length=0, crc=0) == before._replace(
        length=0, crc=0, base_timestamp=-1, count=0
    )
    assert (after.size, after.next_offset) == (61, 3)
    assert decode_batch(partition.segment(0), 0) == []


def test_empty_batch_of_a_compressed_one_has_nothing_to_decompress() -> None:
    partition = Partition()
    partition.producers[1] = partition.append(
        (b"a", b"1"), producer_id=1, producer_epoch=0, base_sequence=0, codec=Codec.GZIP
    )
    partition.append((b"a", b"2"))
    partition.roll()
    partition.clean()
    empty, _ = partition.headers()
    assert (empty.codec, empty.count, empty.size) == (Codec.NONE, 0, 61)


def test_header_of_a_batch_says_what_it_said_but_for_what_went() -> None:
    partition = Partition()
    batch = encode_batch(
        [(T0 + n, key, b"1", ()) for n, key in enumerate((b"a", b"b", b"c"))],
        leader_epoch=5,
        producer_id=1,
        producer_epoch=3,
        base_sequence=40,
    )
    partition.append_bytes(changed(batch, attributes=TRANSACTIONAL), 2)
    partition.end_transaction(1, COMMIT)
    partition.append((b"c", b"2"))
    partition.roll()
    before = partition.headers()[0]
    partition.clean()
    after = partition.headers()[0]
    same = {"length": after.length, "crc": after.crc}
    assert after == before._replace(count=2, max_timestamp=T0 + 1, **same)
    assert after.length < before.length


def test_empty_batch_goes_when_its_producer_has_written_again() -> None:
    partition = Partition()
    append_produced(partition, 1, 0, (b"a", b"1"))
    partition.append((b"a", b"2"))
    partition.roll()
    partition.clean()
    assert partition.batch_ends() == [0, 1]
    append_produced(partition, 1, 1, (b"b", b"1"))
    partition.roll()
    partition.clean()
    assert partition.batch_ends() == [1, 2]


def test_batch_with_numbers_used_before_is_told_apart_by_offset() -> None:
    partition = Partition()
    append_produced(partition, 1, 0, (b"a", b"1"))
    append_produced(partition, 1, 0, (b"a", b"2"))
    partition.append((b"a", b"3"))
    partition.roll()
    partition.clean()
    assert partition.batch_ends() == [1, 2]


def test_last_batch_of_a_producer_stays_though_its_transaction_was_aborted() -> None:
    partition = Partition()
    partition.append_in_transaction(1, (b"a", b"1"))
    partition.producers[1] = partition.append_in_transaction(1, (b"b", b"1"), (b"c", b"1"))
    partition.end_transaction(1, ABORT)
    partition.roll()
    partition.clean()
    assert (partition.batch_ends(), partition.offsets()) == ([2, 3], [3])
    assert [header.base_sequence for header in partition.headers()] == [1, -1]
    partition.producers[1] = partition.append_in_transaction(1, (b"d", b"1"))
    partition.end_transaction(1, COMMIT)
    partition.roll()
    partition.clean()
    assert (partition.batch_ends(), partition.offsets()) == ([3, 4, 5], [3, 4, 5])


def test_last_offset_of_a_batch_whose_end_went_still_says_the_last_number() -> None:
    partition = Partition()
    append_produced(partition, 1, 0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1"))
    partition.append((b"c", b"2"))
    partition.roll()
    partition.clean()
    header = partition.headers()[0]
    assert (header.last_offset_delta, header.count, partition.offsets()) == (2, 2, [0, 1, 3])


def test_aborted_data_goes_and_shadows_nothing() -> None:
    partition = Partition()
    partition.append((b"a", b"1"))
    partition.append_in_transaction(1, (b"a", b"aborted"))
    partition.append_in_transaction(2, (b"b", b"committed"))
    partition.end_transaction(1, ABORT)
    partition.end_transaction(2, COMMIT)
    aborted = partition._aborted[:]
    partition.roll()
    partition.clean()
    assert partition.offsets() == [0, 2, 3, 4]
    assert partition.pairs()[:2] == [(b"a", b"1"), (b"b", b"committed")]
    assert partition.aborted() == aborted


def test_data_and_marker_in_different_segments_belong_together() -> None:
    partition = Partition(config=LogConfig(segment_bytes=100))
    partition.append_in_transaction(1, (b"a", b"aborted"))
    partition.append((b"b", b"1"))
    partition.roll()
    partition.end_transaction(1, ABORT)
    partition.roll()
    partition.clean()
    assert partition.offsets() == [1, 2]
    assert len(partition.aborted()) == 1


def test_undecided_part_is_kept_until_it_is_decided() -> None:
    partition = Partition()
    partition.append((b"a", b"1"), (b"b", b"1"))
    undecided = partition.roll()
    partition.append_in_transaction(1, (b"a", b"aborted"))
    partition.append_in_transaction(2, (b"b", b"committed"))
    partition.roll()
    partition.clean(uncleanable=undecided)
    assert partition.offsets() == [0, 1, 2, 3]
    partition.end_transaction(1, ABORT)
    partition.end_transaction(2, COMMIT)
    partition.roll()
    partition.clean()
    assert partition.offsets() == [0, 3, 4, 5]
    assert partition.pairs()[:2] == [(b"a", b"1"), (b"b", b"committed")]


def test_marker_in_a_segment_that_is_not_cleaned_says_what_was_aborted() -> None:
    partition = Partition()
    partition.append((b"a", b"1"))
    partition.append_in_transaction(1, (b"a", b"aborted"))
    boundary = partition.roll()
    partition.end_transaction(1, ABORT)
    partition.roll()
    partition.clean(uncleanable=boundary)
    assert partition.pairs()[0] == (b"a", b"1")
    assert partition.offsets() == [0, 2]


def test_transaction_after_an_aborted_one_of_the_clean_part_hides_older_values() -> None:
    partition = Partition(config=LogConfig(segment_bytes=14))
    partition.append((b"a", b"1"))
    partition.append_in_transaction(1, (b"b", b"aborted"))
    partition.end_transaction(1, ABORT)
    partition.roll()
    partition.clean()
    assert len(partition.aborted()) == 1
    partition.append_in_transaction(1, (b"a", None))
    partition.end_transaction(1, COMMIT)
    partition.roll()
    partition.clean()
    assert partition.offsets() == [2, 3, 4]


def test_same_producer_may_abort_and_then_commit() -> None:
    partition = Partition()
    partition.append_in_transaction(1, (b"a", b"aborted"))
    partition.end_transaction(1, ABORT)
    partition.append_in_transaction(1, (b"a", b"committed"))
    partition.end_transaction(1, COMMIT)
    partition.roll()
    partition.clean()
    assert partition.offsets() == [1, 2, 3]


def test_commit_marker_goes_only_after_its_data_and_when_old() -> None:
    partition = Partition(config=LogConfig(segment_bytes=14))
    partition.append_in_transaction(1, (b"a", b"1"))
    partition.end_transaction(1, COMMIT)
    partition.roll()
    partition.clean()
    left = []
    for day, key in enumerate((b"b", b"a", b"c"), start=1):
        partition.append((key, b"2"))
        partition.roll(T0 + day * 2 * DAY_MS)
        partition.clean()
        left.append(partition.offsets())
    assert left == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


def test_marker_of_a_later_transaction_goes_though_an_earlier_one_has_data() -> None:
    partition = Partition(config=LogConfig(delete_retention_ms=0))
    for key in (b"a", b"b"):
        partition.append_in_transaction(1, (key, b"1"))
        partition.end_transaction(1, COMMIT)
    partition.append((b"b", b"2"))
    partition.roll()
    for _ in range(3):
        partition.clean()
    assert partition.offsets() == [0, 1, 4]


def test_commit_marker_without_data_waits_until_it_is_old() -> None:
    partition = Partition()
    partition.append_in_transaction(1, (b"a", b"1"))
    partition.end_transaction(1, COMMIT)
    partition.append((b"a", b"2"))
    partition.roll()
    for _ in range(3):
        partition.clean()
        assert partition.offsets() == [1, 2]


def test_abort_marker_goes_a_run_after_its_data_when_old() -> None:
    partition = Partition(config=LogConfig(segment_bytes=14))
    partition.append_in_transaction(1, (b"a", b"1"))
    partition.end_transaction(1, ABORT)
    partition.roll()
    partition.clean()
    assert (partition.offsets(), len(partition.aborted())) == ([1], 1)
    partition.append((b"b", b"1"))
    partition.roll(NEXT_DAY)
    partition.clean()
    partition.append((b"c", b"1"))
    partition.roll(NEXT_DAY + 1)
    partition.clean()
    assert (partition.offsets(), partition.aborted()) == ([2, 3], [])


@pytest.mark.parametrize("marker", [ABORT, COMMIT])
def test_empty_batch_of_the_producer_holds_its_marker(marker: bytes) -> None:
    partition = Partition(config=LogConfig(segment_bytes=14, delete_retention_ms=0))
    partition.producers[1] = partition.append_in_transaction(1, (b"a", b"1"))
    partition.end_transaction(1, marker)
    partition.append((b"a", b"2"))
    partition.roll()
    for _ in range(3):
        partition.clean()
        assert partition.batch_ends() == [0, 1, 2]
        assert len(partition.aborted()) == (marker == ABORT)
    append_produced(partition, 1, 1, (b"c", b"1"))
    partition.roll()
    partition.clean()
    assert partition.batch_ends() == [1, 2, 3]
    partition.clean()
    assert (partition.batch_ends(), partition.aborted()) == ([2, 3], [])


def test_marker_of_a_producer_with_no_data_left_is_kept_for_its_epoch() -> None:
    partition = Partition(config=LogConfig(delete_retention_ms=0))
    partition.producers[1] = NO_DATA
    partition.end_transaction(1, ABORT)
    partition.end_transaction(2, ABORT)
    partition.append((b"a", b"1"))
    partition.roll()
    for _ in range(2):
        partition.clean()
    assert partition.batch_ends() == [0, 2]


def test_older_data_of_a_producer_with_no_data_left_goes() -> None:
    partition = Partition()
    partition.append((b"a", b"1"), producer_id=1, producer_epoch=0, base_sequence=0)
    partition.producers[1] = NO_DATA
    partition.append((b"a", b"2"))
    partition.roll()
    partition.clean()
    assert partition.batch_ends() == [1]


def test_marker_that_was_emptied_may_go_like_any_other() -> None:
    partition = Partition(config=LogConfig(delete_retention_ms=0))
    partition.producers[1] = NO_DATA
    partition.end_transaction(1, ABORT)
    partition.append((b"a", b"1"))
    partition.roll()
    for _ in range(3):
        partition.clean()
    assert [header.count for header in partition.headers()] == [0, 1]
    partition.producers.clear()
    partition.clean()
    assert partition.batch_ends() == [1]


def test_marker_of_a_type_not_known_here_stays() -> None:
    partition = Partition(config=LogConfig(delete_retention_ms=0))
    partition.end_transaction(1, b"\0\0\0\5")
    partition.append((b"a", b"1"))
    partition.roll()
    for _ in range(2):
        partition.clean()
    assert partition.offsets() == [0, 1]


def test_piece_of_which_nothing_stays_does_not_stop_the_run() -> None:
    partition = Partition()
    for _ in range(3):
        partition.append((b"a", bytes(LEAST_READ_BYTES)))
    partition.append((b"a", b"last"))
    partition.roll()
    partition.clean()
    assert partition.pairs() == [(b"a", b"last")]


def test_piece_of_which_only_empty_batches_stay_is_indexed_by_their_offsets() -> None:
    partition = Partition(config=LogConfig(index_interval_bytes=0))
    for producer_id in range(3):
        append_produced(partition, producer_id, 0, (b"a", bytes(LEAST_READ_BYTES)))
    partition.append((b"a", b"last"))
    partition.roll()
    partition.clean()
    assert partition.batch_ends() == [0, 1, 2, 3]
    segment = Segment.load(partition.directory, 0, T0)
    assert [segment.offset_index.file.entry(n) for n in range(3)] == [(1, 61), (2, 122), (3, 183)]


def test_transaction_is_aborted_from_its_first_offset_on_only() -> None:
    partition = Partition()
    partition.append_in_transaction(1, (b"a", b"1"))
    partition.append_in_transaction(1, (b"b", b"1"))
    partition.roll()
    first, second = partition.headers()
    transactions = CleanedTransactions([AbortedTransaction(1, 1, 9, 10)])
    assert [transactions.is_aborted(first), transactions.is_aborted(second)] == [False, True]
