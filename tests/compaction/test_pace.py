"""The speed of a run."""

from __future__ import annotations

import pytest

from compaction.job import CLEAN, INDEX, CleanerStatistics, CleaningProgress, Finished
from compaction.pace import BURST_S, Throttler


def test_bytes_are_paid_for_in_time() -> None:
    pace, now_s = Throttler(1000, 0.0), 0.0
    for _ in range(10):
        now_s += pace.pause_s(CleaningProgress(INDEX, 500, 0), now_s)
    assert now_s == pytest.approx(5.0)


def test_work_that_is_slow_enough_is_not_slowed() -> None:
    pace = Throttler(1000, 0.0)
    assert pace.pause_s(CleaningProgress(INDEX, 500, 0), 1.0) == pytest.approx(0.5 - BURST_S)
    assert pace.pause_s(CleaningProgress(INDEX, 500, 0), 9.0) == pytest.approx(0.5 - BURST_S)


def test_what_was_not_used_is_not_saved_for_long() -> None:
    pace = Throttler(1000, 0.0)
    assert pace.pause_s(CleaningProgress(INDEX, 10_000, 0), 1000.0) == pytest.approx(10 - BURST_S)


def test_another_speed_counts_for_what_is_owed_too() -> None:
    pace = Throttler(1000, 0.0)
    assert pace.pause_s(CleaningProgress(INDEX, 10_000, 0), 0.0) == pytest.approx(10)
    assert pace.change_speed(100, 5.0) == pytest.approx(50)
    assert pace.change_speed(5000, 5.0) == pytest.approx(1)
    assert pace.pause_s(CleaningProgress(INDEX, 5000, 0), 6.0) == pytest.approx(1)


def test_a_run_that_owes_nothing_does_not_wait_for_another_speed() -> None:
    pace = Throttler(1000, 0.0)
    pace.pause_s(CleaningProgress(INDEX, 100, 0), 0.0)
    assert pace.change_speed(1, 60.0) == 0


def test_without_a_limit_there_is_no_pause() -> None:
    assert Throttler(1.8e308, 0.0).pause_s(CleaningProgress(INDEX, 1 << 30, 0), 0.0) == 0


def test_the_end_is_told_how_long_each_phase_took() -> None:
    pace = Throttler(1e9, 5.0)
    pace.pause_s(CleaningProgress(INDEX, 1, 0), 6.0)
    pace.pause_s(CleaningProgress(INDEX, 1, 0), 7.5)
    pace.pause_s(CleaningProgress(CLEAN, 1, 0), 8.0)
    timed = pace.add_times(Finished(9, CleanerStatistics(bytes_read=3)), 9.0)
    assert timed == Finished(9, CleanerStatistics(bytes_read=3, map_ms=2500, clean_ms=1500))
