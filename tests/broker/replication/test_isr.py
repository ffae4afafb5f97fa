"""The rules for the ISR and for the high watermark."""

from __future__ import annotations

import pytest

from broker.replication.isr import (
    Follower,
    LastFetch,
    find_lagging,
    may_join,
    next_high_watermark,
)

LAG_MS = 100


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param([], 10, id="alone, it is the log's end"),
        pytest.param([7], 7, id="the slowest in sync holds it"),
        pytest.param([9, 6], 6, id="the slowest of several"),
        pytest.param([-1], 5, id="one not heard of holds it where it is"),
        pytest.param([3], 5, id="it never goes back"),
        pytest.param([12], 10, id="nor beyond the log's end"),
    ],
)
def test_the_high_watermark_of_a_leader_at_ten_that_was_at_five(
    ends: list[int], expected: int
) -> None:
    assert next_high_watermark(5, 10, ends) == expected


def follower(end: int = 0, in_sync: bool = True) -> Follower:
    """Make a follower of a leader whose log ended at 15 when it was elected, at time 0."""
    follower = Follower.at_epoch_start(in_sync, 15, 0)
    follower.end_offset = end
    return follower


def is_lagging(follower: Follower, now_ms: int, leader_end: int = 15) -> bool:
    return find_lagging((0, 1), {1: follower}, leader_end, LAG_MS, now_ms) == {1}


def test_a_follower_that_was_caught_up_and_asks_no_more_is_out_when_the_lag_time_is_over() -> None:
    stuck = follower()
    stuck.note_fetch(15, 0, 15, 0)
    assert not is_lagging(stuck, 100, leader_end=16)
    assert is_lagging(stuck, 150, leader_end=16)


def test_a_follower_that_never_asks_has_one_lag_time() -> None:
    assert not is_lagging(follower(-1), 100)
    assert is_lagging(follower(-1), 101)


def test_a_follower_that_asks_and_stays_behind_is_out_until_it_reaches_the_end() -> None:
    slow = follower()
    slow.note_fetch(3, 0, 15, 75)
    assert not is_lagging(slow, 75)
    slow.note_fetch(6, 0, 15, 150)
    assert is_lagging(slow, 150)
    slow.note_fetch(15, 0, 15, 160)
    assert not is_lagging(slow, 160)


def test_a_follower_with_all_there_is_stays_though_it_is_silent() -> None:
    idle = follower()
    idle.note_fetch(15, 0, 15, 0)
    assert not is_lagging(idle, 10_000)


def test_a_follower_at_rest_has_a_lag_time_from_the_last_fetch_of_its_session() -> None:
    resting = follower()
    session = LastFetch(0)
    resting.note_fetch(15, 0, 15, 0, session)

    session.ms = 1000
    resting.end_rest()

    assert not is_lagging(resting, 1100, leader_end=16)
    assert is_lagging(resting, 1101, leader_end=16)


def test_under_steady_writing_it_is_enough_to_reach_the_end_of_the_fetch_before() -> None:
    behind = follower()
    behind.note_fetch(15, 0, 20, 50)
    behind.note_fetch(20, 0, 25, 90)
    assert behind.caught_up_ms == 50
    behind.note_fetch(25, 0, 30, 140)
    assert behind.caught_up_ms == 90


@pytest.mark.parametrize(
    ("end", "high_watermark", "epoch_start", "joins"),
    [
        pytest.param(10, 10, 0, True, id="at the watermark"),
        pytest.param(9, 10, 0, False, id="below it"),
        pytest.param(12, 5, 12, True, id="at the start of the epoch"),
        pytest.param(11, 5, 12, False, id="at the watermark of a leader that is new"),
        pytest.param(-1, 0, 0, False, id="not heard of"),
    ],
)
def test_a_follower_joins_when_it_has_all_that_was_acknowledged(
    end: int, high_watermark: int, epoch_start: int, joins: bool
) -> None:
    assert may_join(follower(end), high_watermark, epoch_start) is joins
