"""The rules of lag, each by its case."""

import pytest

from clients.groups.group_facts import LogOffsets
from clients.groups.lag import Position, lag_of


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
