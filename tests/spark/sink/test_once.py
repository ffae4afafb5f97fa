"""What tells rows that are in the log from those that are missing."""

from itertools import repeat

import pytest

from protocol.records.batch import Record
from protocol.topic_partition import OffsetAndMetadata, TopicPartition
from spark_connector.sink.once import (
    EPOCHS,
    Content,
    Found,
    NotRepeatable,
    TaskIdentity,
    TaskNumbers,
    batch_bytes,
    commit_of,
    content_of,
    first_commit,
    last_done,
    require_fresh,
    require_written,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TASK = TaskIdentity("q", 7, 3)


def record(value: bytes, key: bytes | None = None) -> Record:
    return Record(0, 0, key, value, (("h", None),))


def test_all_attempts_of_a_task_are_one_producer_and_other_tasks_are_others() -> None:
    assert TaskIdentity("q", 7, 3).producer_id == TASK.producer_id
    assert TaskIdentity("q", 8, 3).producer_id == TASK.producer_id
    others = {TaskIdentity("q", 7, 4), TaskIdentity("p", 7, 3), TaskIdentity("q", 7 + EPOCHS, 3)}
    assert TASK.producer_id not in {other.producer_id for other in others}


def test_ids_and_epochs_fit_a_batchs_header() -> None:
    for batch_id in (0, EPOCHS - 1, EPOCHS, 10 * EPOCHS + 5):
        task = TaskIdentity("q", batch_id, 0)
        assert 2**62 <= task.producer_id < 2**63
        assert 0 <= task.epoch < EPOCHS


def test_numbers_go_on_behind_what_is_there_and_never_change_their_epoch() -> None:
    numbers = TaskNumbers(producer_id=5, epoch=7, next_by_partition={T0: 10})
    first = numbers.next_numbers(T0)
    assert (first.producer_id, first.producer_epoch, first.base_sequence) == (5, 7, 10)
    numbers.begin_epoch(T0, first)
    assert numbers.next_numbers(T0) == first
    numbers.record_delivery(T0, first, 3, 100)
    assert numbers.next_numbers(T0).base_sequence == 13
    assert numbers.next_numbers(T1).base_sequence == 0


def test_a_record_in_the_log_stands_for_one_row_whatever_their_order() -> None:
    found = Found()
    found.add(T0, 2, [record(b"b"), record(b"a")])
    found.add(T1, 1, [record(b"a")])
    headers = (("h", None),)
    assert [found.take(None, value, headers) for value in (b"a", b"a", b"a", b"b", b"c")] == [
        *(True, True, False, True, False)
    ]
    found.require_all_met(TASK)


def test_key_value_and_headers_all_count() -> None:
    found = Found()
    found.add(T0, 1, [record(b"a", b"k")])
    assert not found.take(None, b"a", (("h", None),))
    assert not found.take(b"k", b"a", ())
    assert found.take(b"k", b"a", (("h", None),))


def test_a_record_in_the_log_without_a_row_is_an_error() -> None:
    found = Found()
    found.add(T0, 1, [record(b"a")])
    with pytest.raises(NotRepeatable, match=r"query q, batch 7, task 3: .* wrote 1 records"):
        found.require_all_met(TASK)


def test_a_group_says_which_batch_is_done() -> None:
    ends = {T0: 5, T1: 7}
    assert last_done(first_commit(ends).values()) == -1
    assert last_done(commit_of(12, ends).values()) == 12
    assert last_done([OffsetAndMetadata(3, "batch 9"), OffsetAndMetadata(0, "")]) == 9


def test_a_batch_acknowledged_below_where_the_log_ended_is_of_an_earlier_attempt() -> None:
    require_fresh([(T0, 5), (T1, 9)], {T0: 5, T1: 7}, TASK)
    with pytest.raises(NotRepeatable, match="t-1: an attempt of query q, batch 7, task 3"):
        require_fresh([(T0, 5), (T1, 6)], {T0: 5, T1: 7}, TASK)


# --- what a task wrote, and what the log has


def content(*values: bytes) -> Content:
    rows = Content()
    rows.add(repeat(None), values, repeat(()))
    return rows


def test_content_is_the_same_in_any_order_and_counts_each_record() -> None:
    assert content(b"a", b"b", b"b") == content(b"b", b"a") + content(b"b")
    assert content(b"a", b"b") != content(b"a", b"b", b"b")
    assert content(b"a", b"b") != content(b"a", b"c")
    assert content(b"a") == content_of([Record(0, 0, None, b"a", ())])


@pytest.mark.fault("core-R2")
def test_other_records_in_the_place_of_a_tasks_rows_are_an_error() -> None:
    require_written(content(b"a", b"b"), content(b"b", b"a"), TASK)
    with pytest.raises(NotRepeatable, match="query q, batch 7, task 3: another attempt"):
        require_written(content(b"a", b"b"), content(b"a", b"a"), TASK)


def test_batches_of_attempts_differ_in_size() -> None:
    sizes = [batch_bytes(1_000, attempt, part) for attempt in range(3) for part in (0.0, 0.5, 1.0)]
    assert sizes == [1_000, 833, 667, 794, 627, 461, 921, 755, 588]
