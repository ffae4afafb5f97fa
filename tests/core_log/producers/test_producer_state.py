"""The batches that a leader takes from producers with an id, and its memory of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from core_log.producers.producer_state import MAX_SEQUENCE, ProducedBatch, ProducerState
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader
from tests.core_log.transactional_batches import expire

P = 7
DAY_MS = 86_400_000
ALL_REPLICATED = 2**62
DUPLICATE, FENCED = "duplicate", ErrorCode.INVALID_PRODUCER_EPOCH
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID


def batch(sequence: int, count: int = 1, epoch: int = 0, attributes: int = 0) -> BatchHeader:
    """The header of a client's batch of `count` records."""
    return BatchHeader(0, 0, 0, 2, 0, attributes, count - 1, 5, 5, P, epoch, sequence, count)


def marker(epoch: int = 0) -> BatchHeader:
    """The end of a transaction."""
    return batch(-1, epoch=epoch, attributes=CONTROL | TRANSACTIONAL)


def state(*written: BatchHeader, first_offset: int = 0) -> ProducerState:
    """Return the state of a log that holds these batches, one after the other."""
    producers, offset = ProducerState(), first_offset
    for header in written:
        offset += header.count
        producers.update(header, offset - 1, 1000 + offset)
    return producers


def answer(producers: ProducerState, header: BatchHeader, **how: Any) -> Any:
    """Return None for a batch that may be appended, else why it may not."""
    try:
        duplicate = producers.check(header, **how)
    except ApiError as error:
        return error.code
    return None if duplicate is None else DUPLICATE


@pytest.mark.parametrize(
    ("written", "next_batch", "expected"),
    [
        ([], batch(0), None),
        ([], batch(0, epoch=3), None),
        ([], batch(1), None),
        ([], batch(1, attributes=TRANSACTIONAL), None),
        ([batch(0)], batch(1), None),
        ([batch(0, 3)], batch(3, 2), None),
        ([batch(0)], batch(2), OUT_OF_ORDER),
        ([batch(0), batch(1)], batch(1), DUPLICATE),
        ([batch(0), batch(1)], batch(0), DUPLICATE),
        ([batch(0, 3)], batch(0, 2), OUT_OF_ORDER),
        ([batch(0, 3)], batch(1, 2), OUT_OF_ORDER),
        ([batch(0, 3)], batch(2, 5), OUT_OF_ORDER),
        ([batch(0)], batch(0, epoch=1), None),
        ([batch(0)], batch(1, epoch=1), OUT_OF_ORDER),
        ([batch(0, epoch=1)], batch(0, epoch=0), FENCED),
        ([batch(0, epoch=1)], batch(1, epoch=0), FENCED),
        ([batch(0, epoch=0), batch(0, epoch=1)], batch(1, epoch=1), None),
        ([marker(1)], batch(0, epoch=1), None),
        ([marker(1)], batch(2, epoch=1), UNKNOWN),
        ([batch(0), marker(1)], batch(1, epoch=0), FENCED),
        ([batch(0), marker(1)], batch(2, epoch=1), UNKNOWN),
        ([batch(0), marker(1)], batch(0, epoch=1), None),
        ([batch(0, attributes=TRANSACTIONAL)], batch(1), ErrorCode.INVALID_TXN_STATE),
        ([batch(0, attributes=TRANSACTIONAL), marker()], batch(1), None),
    ],
    ids=str,
)
def test_a_batch_is_taken_recognised_or_refused(
    written: list[BatchHeader], next_batch: BatchHeader, expected: Any
) -> None:
    assert answer(state(*written), next_batch) == expected


def test_numbers_go_on_with_0_after_the_largest() -> None:
    end = state(batch(MAX_SEQUENCE - 1, 2))
    assert answer(end, batch(0)) is None
    assert answer(end, batch(1)) == OUT_OF_ORDER


def test_a_batch_may_span_the_largest_number() -> None:
    spanning = batch(MAX_SEQUENCE - 1, 5)
    producers = state(spanning)
    assert answer(producers, spanning) == DUPLICATE
    assert answer(producers, batch(3)) is None


def test_a_repeated_batch_is_found_with_its_first_offset_and_time() -> None:
    duplicate = state(batch(0, 3), batch(3), first_offset=40).check(batch(0, 3))
    assert duplicate == ProducedBatch(2, 42, 2, 1043)
    assert duplicate.base_offset == 40


def test_the_last_five_batches_are_remembered_and_none_before_them() -> None:
    producers = state(*(batch(sequence) for sequence in range(6)))
    assert [answer(producers, batch(s)) for s in range(6)] == [OUT_OF_ORDER] + [DUPLICATE] * 5


def test_a_marker_of_a_new_epoch_has_numbers_begin_with_0() -> None:
    producers = state(batch(0, 3), marker(1))
    assert (producers.producers[P].epoch, producers.producers[P].next_sequence) == (1, 0)
    assert [answer(producers, batch(n, epoch=1)) for n in (0, 2, 3)] == [None, UNKNOWN, UNKNOWN]


def test_a_marker_of_the_same_epoch_has_numbers_go_on() -> None:
    producers = state(batch(0, 3, attributes=TRANSACTIONAL), marker())
    assert [answer(producers, batch(n)) for n in (3, 0)] == [None, OUT_OF_ORDER]


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    producers = state(batch(0), batch(1), batch(0, epoch=1))
    assert len(producers.producers[P].batches) == 1


def test_a_check_changes_nothing() -> None:
    producers = state(batch(0))
    before = repr(producers.producers)
    for tried in (batch(1), batch(5), batch(0), batch(0, epoch=4)):
        answer(producers, tried)
    assert repr(producers.producers) == before


def test_what_is_in_a_log_is_noted_whatever_its_numbers() -> None:
    producers = state(batch(15), batch(99))
    assert answer(producers, batch(100)) is None


def test_where_only_the_epoch_counts_numbers_may_be_any() -> None:
    producers = state(batch(0, epoch=2))
    assert answer(producers, batch(9, epoch=2), epoch_only=True) is None
    assert answer(producers, batch(9, epoch=3), epoch_only=True) is None
    assert answer(producers, batch(1, epoch=1), epoch_only=True) == FENCED
    assert answer(ProducerState(), batch(9), epoch_only=True) is None


def test_an_open_transaction_keeps_its_first_offset_until_its_marker() -> None:
    producers = state(batch(0, 4, attributes=TRANSACTIONAL), first_offset=16)
    producers.update(batch(4, attributes=TRANSACTIONAL), 20, 5)
    assert producers.producers[P].transaction_start == 16
    producers.update(marker(), 21, 5)
    assert producers.producers[P].transaction_start == -1


def test_a_silent_producer_is_forgotten_after_its_time() -> None:
    producers = ProducerState()
    producers.update(batch(0), 0, 1000)
    assert expire(producers, 1000 + DAY_MS - 1, DAY_MS) == 0
    assert expire(producers, 1000 + DAY_MS, DAY_MS) == 1
    assert answer(producers, batch(1)) is None


def test_records_of_long_ago_do_not_make_a_producer_forgotten_that_writes_now() -> None:
    producers = ProducerState()
    producers.update(batch(0), 0, 1000, now_ms=900 * DAY_MS)
    assert expire(producers, 901 * DAY_MS - 1, DAY_MS) == 0
    assert expire(producers, 901 * DAY_MS, DAY_MS) == 1


def test_a_producer_whose_records_are_from_the_future_is_forgotten_too() -> None:
    running, restarted = ProducerState(), ProducerState()
    running.update(batch(0), 0, 900 * DAY_MS, now_ms=1000)
    restarted.update(batch(0), 0, 900 * DAY_MS)
    for producers in (running, restarted):
        assert expire(producers, 1000, DAY_MS) == 0
        assert expire(producers, 1000 + DAY_MS - 1, DAY_MS) == 0
        assert expire(producers, 1000 + DAY_MS, DAY_MS) == 1


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    producers = state(batch(0, attributes=TRANSACTIONAL))
    assert expire(producers, 900 * DAY_MS, DAY_MS) == 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_producer_that_writes_while_others_are_forgotten_stays(is_shared: bool) -> None:
    producers = ProducerState()
    producers.update(batch(0), 0, 1000)
    steps = producers.expire(1000 + DAY_MS, DAY_MS)
    next(steps)
    producers.is_shared = is_shared
    producers.update(batch(1), 1, 1000, now_ms=1000 + DAY_MS)
    assert list(steps) == []
    assert list(producers.producers) == [P]


def test_the_oldest_open_transaction_is_where_stable_data_ends() -> None:
    producers = ProducerState()
    assert producers.first_unstable_offset(ALL_REPLICATED) is None
    for producer_id, offset in ((1, 10), (2, 12)):
        sent = batch(0, attributes=TRANSACTIONAL)._replace(producer_id=producer_id)
        producers.update(sent, offset, 5)
    assert producers.first_unstable_offset(ALL_REPLICATED) == 10
    producers.update(marker()._replace(producer_id=1), 13, 5)
    assert producers.first_unstable_offset(ALL_REPLICATED) == 12
    producers.update(marker()._replace(producer_id=2), 14, 5)
    assert producers.first_unstable_offset(ALL_REPLICATED) is None


@pytest.mark.parametrize("seed", range(200))
def test_truncation_in_memory_leaves_what_was_noted_below_it(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [batch(0), batch(0, 3), batch(0, attributes=TRANSACTIONAL), marker(), marker(1)]
    written = [rng.choice(kinds) for _ in range(rng.randint(1, 12))]
    kept = rng.randint(0, len(written))
    producers, below = state(*written), state(*written[:kept])

    is_told = producers.truncate_to(sum(header.count for header in written[:kept]))

    if is_told:
        truncated = producers.producers[P]
        expected = below.producers[P]
        batches = list(truncated.batches)
        assert batches == list(expected.batches)[-len(batches) :]
        truncated.batches = expected.batches
        assert truncated == expected
        assert producers.first_unstable_offset(ALL_REPLICATED) == below.first_unstable_offset(
            ALL_REPLICATED
        )


def test_truncation_of_the_last_batches_is_told_by_those_before_them() -> None:
    producers = state(batch(0), batch(1), batch(2))
    assert producers.truncate_to(1)
    assert answer(producers, batch(1)) is None
    assert not producers.truncate_to(0)  # there may have been batches before the remembered ones


# ---- transactions of a leader


def test_where_only_the_epoch_counts_no_batch_repeats_another() -> None:
    """Two commits of a transaction look alike: neither has numbers."""
    producers = state(batch(0, attributes=TRANSACTIONAL))
    again = batch(0, attributes=TRANSACTIONAL)
    assert answer(producers, again) == DUPLICATE
    assert answer(producers, again, epoch_only=True) is None


COORDINATOR_FENCED = ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "expected"),
    [
        (2, 5, None),
        (2, 6, None),
        (3, 5, None),
        (1, 6, FENCED),
        (2, 4, COORDINATOR_FENCED),
        (3, 4, COORDINATOR_FENCED),
        (1, 4, FENCED),
    ],
)
def test_a_marker_is_taken_unless_a_later_epoch_was_there(
    epoch: int, coordinator_epoch: int, expected: Any
) -> None:
    producers = state(batch(0, epoch=2, attributes=TRANSACTIONAL))
    producers.update(marker(2), 1, 5, coordinator_epoch=5)
    try:
        producers.check_marker(marker(epoch), coordinator_epoch)
        code = None
    except ApiError as error:
        code = error.code
    assert code == expected


def test_a_marker_of_a_producer_that_nobody_knows_is_taken() -> None:
    ProducerState().check_marker(marker(7), 0)


def test_a_transaction_holds_readers_until_its_marker_is_replicated() -> None:
    producers = state(batch(0, attributes=TRANSACTIONAL), first_offset=99)
    producers.update(marker(), 105, 5)
    assert producers.first_unstable_offset(105) == 99
    assert producers.first_unstable_offset(106) is None


def test_the_oldest_of_open_and_ended_transactions_holds_readers() -> None:
    producers = ProducerState()
    for producer_id, offset in ((1, 10), (2, 12), (3, 14)):
        sent = batch(0, attributes=TRANSACTIONAL)._replace(producer_id=producer_id)
        producers.update(sent, offset, 5)
    producers.update(marker()._replace(producer_id=1), 20, 5)
    producers.update(marker()._replace(producer_id=3), 21, 5)
    assert producers.first_unstable_offset(15) == 10
    assert producers.first_unstable_offset(21) == 12
    producers.update(marker()._replace(producer_id=2), 22, 5)
    assert producers.first_unstable_offset(21) == 12
    assert producers.first_unstable_offset(23) is None


def test_what_is_truncated_of_transactions_holds_nobody() -> None:
    producers = state(batch(0), batch(1, attributes=TRANSACTIONAL))
    assert producers.truncate_to(1)
    assert producers.first_unstable_offset(0) is None


def test_a_state_that_is_read_again_knows_its_open_transactions() -> None:
    written = state(batch(0, attributes=TRANSACTIONAL), first_offset=40)
    assert ProducerState(written.producers).first_unstable_offset(ALL_REPLICATED) == 40
