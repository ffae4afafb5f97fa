"""How fast a run may go."""

from __future__ import annotations

import pytest

from compaction.job import CLEAN, INDEX, CleanerStatistics, Finished, Progress
from compaction.pace import BURST_S, Pace


def test_bytes_are_paid_for_in_time() -> None:
    pace, now_s = Pace(1000, 0.0), 0.0
    for _ in range(10):
        now_s += pace.pause_s(Progress(INDEX, 500, 0), now_s)
    assert now_s == pytest.approx(5.0)


def test_work_that_is_slow_enough_is_not_slowed() -> None:
    pace = Pace(1000, 0.0)
    assert pace.pause_s(Progress(INDEX, 500, 0), 1.0) == pytest.approx(0.5 - BURST_S)
    assert pace.pause_s(Progress(INDEX, 500, 0), 9.0) == pytest.approx(0.5 - BURST_S)


def test_what_was_not_used_is_not_saved_for_long() -> None:
    pace = Pace(1000, 0.0)
    assert pace.pause_s(Progress(INDEX, 10_000, 0), 1000.0) == pytest.approx(10 - BURST_S)


def test_another_speed_counts_for_what_is_owed_too() -> None:
    pace = Pace(1000, 0.0)
    assert pace.pause_s(Progress(INDEX, 10_000, 0), 0.0) == pytest.approx(10)
    assert pace.changed(100, 5.0) == pytest.approx(50)
    assert pace.changed(5000, 5.0) == pytest.approx(1)
    assert pace.pause_s(Progress(INDEX, 5000, 0), 6.0) == pytest.approx(1)


def test_a_run_that_owes_nothing_does_not_wait_for_another_speed() -> None:
    pace = Pace(1000, 0.0)
    pace.pause_s(Progress(INDEX, 100, 0), 0.0)
    assert pace.changed(1, 60.0) == 0


def test_without_a_limit_there_is_no_pause() -> None:
    assert Pace(1.8e308, 0.0).pause_s(Progress(INDEX, 1 << 30, 0), 0.0) == 0


def test_the_end_is_told_how_long_each_phase_took() -> None:
    pace = Pace(1e9, 5.0)
    pace.pause_s(Progress(INDEX, 1, 0), 6.0)
    pace.pause_s(Progress(INDEX, 1, 0), 7.5)
    pace.pause_s(Progress(CLEAN, 1, 0), 8.0)
    timed = pace.timed(Finished(9, CleanerStatistics(bytes_read=3)), 9.0)
    assert timed == Finished(9, CleanerStatistics(bytes_read=3, map_ms=2500, clean_ms=1500))
