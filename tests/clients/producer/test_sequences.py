"""The sequence numbers of batches, by the results of earlier batches."""

from clients.producer.sequences import MAX_EPOCH, MAX_SEQUENCE, Numbers, Sequences
from protocol.topic_partition import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID = 4000


def test_numbers_go_on_after_what_was_delivered_partition_by_partition() -> None:
    sequences = Sequences(ID)
    sequences.record_delivery(P0, sequences.next_numbers(P0), 3, base_offset=0)
    assert sequences.next_numbers(P0) == Numbers(ID, 0, 3)
    assert sequences.next_numbers(P1) == Numbers(ID, 0, 0)


def test_numbers_begin_again_after_the_largest() -> None:
    sequences = Sequences(ID)
    sequences.record_delivery(P0, sequences.next_numbers(P0), MAX_SEQUENCE, base_offset=0)
    sequences.record_delivery(P0, sequences.next_numbers(P0), 3, base_offset=0)
    assert sequences.next_numbers(P0) == Numbers(ID, 0, 2)


def test_a_batch_that_was_given_up_begins_an_epoch_in_its_partition_alone() -> None:
    sequences = Sequences(ID)
    for partition in (P0, P1):
        sequences.record_delivery(partition, sequences.next_numbers(partition), 5, base_offset=0)
    sequences.begin_epoch(P0, sequences.next_numbers(P0))
    assert sequences.next_numbers(P0) == Numbers(ID, 1, 0)
    assert sequences.next_numbers(P1) == Numbers(ID, 0, 5)


def test_what_is_heard_of_an_epoch_that_is_over_counts_no_more() -> None:
    sequences = Sequences(ID)
    late = sequences.next_numbers(P0)
    sequences.begin_epoch(P0, late)
    sequences.begin_epoch(P0, late)
    sequences.record_delivery(P0, late, 5, base_offset=0)
    assert sequences.next_numbers(P0) == Numbers(ID, 1, 0)


def test_after_the_last_epoch_another_id_is_wanted() -> None:
    sequences = Sequences(ID)
    for _ in range(MAX_EPOCH + 1):
        sequences.begin_epoch(P0, sequences.next_numbers(P0))
        if sequences.producer_id is None:
            break
    assert sequences.producer_id is None
    sequences.producer_id = ID + 1
    assert sequences.next_numbers(P0) == Numbers(ID + 1, 0, 0)


def test_an_unknown_producer_sends_again_what_cannot_be_in_the_log() -> None:
    sequences = Sequences(ID)
    sequences.record_delivery(P0, sequences.next_numbers(P0), 1, base_offset=9)
    numbers = sequences.next_numbers(P0)
    never_sent = sequences.may_renumber(P0, numbers, attempts=0, log_start_offset=0)
    all_deleted = sequences.may_renumber(P0, numbers, attempts=3, log_start_offset=10)
    perhaps_there = sequences.may_renumber(P0, numbers, attempts=1, log_start_offset=9)
    assert (never_sent, all_deleted, perhaps_there) == (True, True, False)


def test_nothing_is_below_the_start_of_a_log_when_no_offset_of_it_was_told() -> None:
    sequences = Sequences(ID)
    sequences.record_delivery(P0, sequences.next_numbers(P0), 1, base_offset=-1)
    numbers = sequences.next_numbers(P0)
    assert not sequences.may_renumber(P0, numbers, attempts=1, log_start_offset=0)
    assert sequences.may_renumber(P0, numbers, attempts=0, log_start_offset=0)
