"""A leader and its followers: high watermark, low watermark and ISR."""

from __future__ import annotations

from core_log.config import LogConfig
from tests.broker.replication.partition.replica import LAG_MS, append, fetch, led, state
from tests.broker.replication.replicas import NOW_MS


def test_the_watermark_is_where_the_slowest_in_sync_is() -> None:
    partition = led(records=3, isr=(0, 1, 2), replicas=(0, 1, 2))
    assert not fetch(partition, 3)
    assert fetch(partition, 2, replica=2)
    assert partition.high_watermark == 2


def test_a_follower_that_asks_for_less_than_before_takes_no_watermark_back() -> None:
    partition = led(records=3)
    fetch(partition, 3)
    assert not fetch(partition, 1)
    assert partition.high_watermark == 3


def test_who_is_caught_up_holds_the_watermark_before_it_is_in_sync() -> None:
    partition = led(records=1, isr=(0,))
    fetch(partition, 1)
    append(partition, b"y")
    partition.advance_high_watermark(NOW_MS + LAG_MS)
    assert partition.high_watermark == 1
    partition.advance_high_watermark(NOW_MS + LAG_MS + 1)
    assert partition.high_watermark == 2


def test_who_is_neither_assigned_nor_in_sync_is_not_known() -> None:
    partition = led(records=1, isr=(0,))
    fetch(partition, 1, replica=9)
    assert 9 not in partition.followers
    assert partition.isr_with(9) is None


def test_a_follower_beyond_the_logs_end_is_not_believed() -> None:
    partition = led(records=2)
    fetch(partition, 5)
    assert (partition.high_watermark, partition.followers[1].end_offset) == (0, -1)


def test_a_follower_at_the_watermark_and_the_start_of_the_epoch_grows_the_isr() -> None:
    partition = led(records=3, isr=(0,))
    partition.advance_high_watermark(NOW_MS)
    fetch(partition, 2)
    assert partition.isr_with(1) is None
    fetch(partition, 3)
    assert partition.isr_with(1) == (0, 1)


def test_a_new_leader_takes_nobody_in_who_lacks_what_was_before_its_epoch() -> None:
    """Its own watermark lags behind what its predecessor has acknowledged (KAFKA-7128)."""
    partition = led(records=3, isr=(0, 2), replicas=(0, 1, 2))
    partition.take_state(state(leader=2, epoch=4), NOW_MS)
    partition.take_state(state(epoch=5, isr=(0, 2), replicas=(0, 1, 2)), NOW_MS)
    assert partition.high_watermark == 0
    fetch(partition, 2)
    assert partition.isr_with(1) is None
    fetch(partition, 3)
    assert partition.isr_with(1) == (0, 2, 1)


def test_a_replica_that_is_being_taken_away_does_not_come_back_into_the_isr() -> None:
    partition = led(records=1, isr=(0, 1), replicas=(0,))
    partition.confirm_isr((0,), 9)
    fetch(partition, 1)
    assert partition.isr_with(1) is None


def test_who_is_behind_for_the_lag_time_leaves_the_isr() -> None:
    partition = led(records=1)
    assert partition.isr_without_lagging(NOW_MS + LAG_MS) is None
    assert partition.isr_without_lagging(NOW_MS + LAG_MS + 1) == (0,)


def test_a_burst_that_is_over_within_the_lag_time_writes_nothing() -> None:
    partition = led(records=1)
    fetch(partition, 1)
    for _ in range(100):
        append(partition, b"x")
    assert partition.isr_without_lagging(NOW_MS + LAG_MS) is None
    fetch(partition, 101, after_ms=LAG_MS)
    assert partition.isr_without_lagging(NOW_MS + 2 * LAG_MS) is None


def test_a_leader_counts_itself_for_what_flush_messages_lets_it() -> None:
    partition = led(LogConfig(flush_messages=2), isr=(0,))
    append(partition, b"a")
    assert partition.advance_high_watermark(NOW_MS)
    append(partition, b"b")
    assert not partition.advance_high_watermark(NOW_MS)
    flush = partition.log.begin_flush()
    flush.run()
    partition.log.end_flush(flush)
    assert partition.advance_high_watermark(NOW_MS)
    assert partition.high_watermark == 2


def test_the_low_watermark_is_of_the_replicas_that_live() -> None:
    partition = led(records=3, isr=(0, 1, 2), replicas=(0, 1, 2))
    for offset, start in ((1, 1), (2, 3)):
        partition.note_follower_fetch(offset, 3, start, NOW_MS)
    partition.log.increment_log_start_offset(2)
    assert partition.low_watermark({0, 1, 2}) == 1
    assert partition.low_watermark({0, 2}) == 2
