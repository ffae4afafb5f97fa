"""A follower: its watermark, its truncations, and the start of its log."""

from __future__ import annotations

import pytest

from broker.replication.partition import Partition, append_as_fetched
from core_log.appending.replicated_run import UnexpectedAppendOffset
from tests.broker.replication.partition.replica import follower, led, state
from tests.broker.replication.replicas import NOW_MS, batch


def take_fetched(
    partition: Partition, records: memoryview, high_watermark: int, start: int, now_ms: int
) -> None:
    """Take a leader's response, as a fetcher does."""
    if records:
        append_as_fetched(partition.log, records, now_ms)
    partition.follow_watermarks(high_watermark, start)


def sent(base_offset: int, *values: bytes) -> memoryview:
    data = bytearray(batch(*values))
    data[0:8] = base_offset.to_bytes(8, "big")
    return memoryview(bytes(data))


NOTHING = memoryview(b"")


def test_the_watermark_of_a_follower_is_the_leaders_as_far_as_its_log_goes() -> None:
    partition = follower()
    take_fetched(partition, sent(0, b"a", b"b"), 1, 0, NOW_MS)
    assert partition.high_watermark == 1
    take_fetched(partition, sent(2, b"c"), 9, 0, NOW_MS)
    assert partition.high_watermark == 3


def test_a_leader_that_knows_less_takes_no_watermark_back() -> None:
    partition = follower(records=3, watermark=3)
    take_fetched(partition, NOTHING, 1, 0, NOW_MS)
    assert partition.high_watermark == 3


def test_a_truncation_takes_the_watermark_with_it() -> None:
    partition = follower(records=3, watermark=3)
    partition.log.truncate_to(1)
    partition.note_truncation()
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)


def test_a_log_begun_anew_is_committed_where_it_begins() -> None:
    partition = follower(records=3, watermark=3)
    partition.log.truncate_fully_and_start_at(50)
    partition.note_new_start()
    assert (partition.log.log_start_offset, partition.high_watermark) == (50, 50)


def test_a_truncation_to_the_end_forgets_an_epoch_in_which_nothing_was_written() -> None:
    partition = led(records=2, isr=(0,))
    partition.take_state(state(epoch=6), NOW_MS)
    assert partition.log.leader_epochs.entries == [(3, 0), (6, 2)]
    partition.take_state(state(leader=1, epoch=7), NOW_MS)
    partition.log.truncate_to(2)
    partition.note_truncation()
    assert partition.log.leader_epochs.entries == [(3, 0)]


def test_the_start_of_the_log_follows_the_leaders_and_never_passes_the_watermark() -> None:
    partition = follower(records=3, watermark=1)
    take_fetched(partition, NOTHING, 2, 3, NOW_MS)
    assert partition.log.log_start_offset == 2
    take_fetched(partition, NOTHING, 3, 1, NOW_MS)
    assert partition.log.log_start_offset == 2


def test_below_its_start_a_log_takes_only_the_batch_in_which_it_begins_and_only_when_empty() -> (
    None
):
    partition = follower()
    partition.log.truncate_fully_and_start_at(5)
    partition.note_new_start()
    with pytest.raises(UnexpectedAppendOffset):
        take_fetched(partition, sent(3, b"d"), 5, 5, NOW_MS)
    take_fetched(partition, sent(4, b"e", b"f", b"g"), 7, 5, NOW_MS)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (5, 7)
    take_fetched(partition, sent(7, b"h"), 8, 5, NOW_MS)
    for base_offset in (3, 7):
        with pytest.raises(UnexpectedAppendOffset):
            take_fetched(partition, sent(base_offset, b"d", b"e"), 8, 5, NOW_MS)
    take_fetched(partition, sent(8, b"i"), 9, 5, NOW_MS)
    assert (partition.log.log_end_offset, partition.high_watermark) == (9, 9)
