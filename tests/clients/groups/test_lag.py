"""The rules of lag, each by its case."""

import pytest

from clients.groups.group_facts import LogOffsets
from clients.groups.lag import MIN_DIFFERENCE_MS, Position, age_of, lag_of, time_lag_of


def test_nothing_committed_on_an_empty_log_is_no_lag() -> None:
    lag = lag_of(None, LogOffsets(7, 7))
    assert (lag.lag, lag.shown, lag.position) == (0, 0, Position.NONE)


def test_nothing_committed_with_data_is_unknown_and_counts_only_when_assigned() -> None:
    lag = lag_of(-1, LogOffsets(10, 25))
    assert (lag.lag, lag.shown) == (None, None)
    assert (lag.counted(assigned=True), lag.counted(assigned=False)) == (15, 0)


def test_committed_in_the_log_lags_by_the_difference() -> None:
    lag = lag_of(12, LogOffsets(10, 25))
    assert (lag.lag, lag.position, lag.counted(False)) == (13, Position.IN_RANGE, 13)


def test_committed_below_the_log_start_counts_what_can_still_be_read_and_is_flagged() -> None:
    lag = lag_of(3, LogOffsets(10, 25))
    assert (lag.lag, lag.position) == (15, Position.BELOW_LOG_START)


def test_committed_beyond_the_log_end_is_negative_for_programs_and_zero_for_people() -> None:
    lag = lag_of(30, LogOffsets(10, 25))
    assert (lag.lag, lag.shown, lag.counted(True)) == (-5, 0, 0)
    assert lag.position is Position.BEYOND_LOG_END


def test_log_end_that_cannot_be_read_leaves_lag_unknown() -> None:
    lag = lag_of(5, LogOffsets(None, None))
    assert (lag.lag, lag.counted(True), lag.position) == (None, 0, Position.UNKNOWN)


def test_commit_of_offset_zero_is_a_commit() -> None:
    assert lag_of(0, LogOffsets(0, 4)).lag == 4


@pytest.mark.fault("tool-F5")
def test_markers_of_transactions_at_the_tail_are_not_lag() -> None:
    # The log was read from 41 on, and has no record there (Burrow#591).
    log = LogOffsets(0, 43, markers_from=41)
    for committed in (41, 42):
        lag = lag_of(committed, log)
        assert (lag.lag, lag.position, lag.behind_if_assigned) == (0, Position.IN_RANGE, 0)
    assert lag_of(40, log).lag == 3


def test_markers_alone_that_retention_left_are_no_lag() -> None:
    lag = lag_of(3, LogOffsets(10, 12, markers_from=10))
    assert (lag.lag, lag.position) == (0, Position.BELOW_LOG_START)


@pytest.mark.fault("strangers-2")
def test_a_record_dated_a_little_ahead_is_of_now_and_a_later_one_has_no_age() -> None:
    little_ahead_ms = 1_000 + MIN_DIFFERENCE_MS
    assert [age_of(at_ms, 1_000) for at_ms in (400, 1_000, little_ahead_ms)] == [600, 0, 0]
    assert age_of(little_ahead_ms + 1, 1_000) is None


@pytest.mark.parametrize(
    ("committed", "log", "next_record_ms", "time_lag_ms"),
    [
        (12, LogOffsets(10, 25), 400, 600),
        (12, LogOffsets(10, 25), None, None),
        (12, LogOffsets(10, 25), 10**9, None),
        (3, LogOffsets(10, 25), 400, 600),
        (25, LogOffsets(10, 25), None, 0),
        (24, LogOffsets(10, 25, markers_from=24), None, 0),
        (None, LogOffsets(7, 7), None, 0),
        (None, LogOffsets(7, 8), None, None),
        (30, LogOffsets(10, 25), None, None),
        (12, LogOffsets(), 400, None),
    ],
)
def test_a_lag_in_time_is_that_of_the_first_record_that_is_left(
    committed: int | None, log: LogOffsets, next_record_ms: int | None, time_lag_ms: int | None
) -> None:
    assert time_lag_of(lag_of(committed, log), next_record_ms, 1_000) == time_lag_ms
