"""Replication quotas: the rate over sliding windows, and the replicas that they cover."""

from __future__ import annotations

import attrs
import pytest

from broker.replication.replication_quota import RateMeter, ReplicationQuota


def rate(*passed: tuple[int, int], at: int, windows: int = 3) -> float:
    """Return a meter that has counted these bytes: (ms, size)."""
    meter = RateMeter(windows, 1000)
    for now_ms, size in passed:
        meter.record(size, now_ms)
    return meter.rate(at)


@pytest.mark.parametrize(
    ("passed", "at", "expected"),
    [
        ([], 5000, 0),
        ([(0, 100)], 0, 100),  # as if it had taken a window, at least
        ([(0, 100)], 500, 100),
        ([(0, 100)], 2000, 50),
        ([(0, 100), (999, 20)], 1000, 120),
        ([(0, 100), (1500, 50)], 2500, 60),
        ([(0, 100)], 3000, 0),  # three windows later it is over
        ([(0, 100), (1500, 50)], 3500, 25),
        ([(0, 100), (8000, 7)], 8000, 7),
    ],
)
def test_the_rate_is_that_of_the_windows_that_are_not_over(
    passed: list[tuple[int, int]], at: int, expected: float
) -> None:
    assert rate(*passed, at=at) == expected


def test_a_clock_that_is_set_back_begins_anew() -> None:
    assert rate((1_000_000, 100), (10, 7), at=10) == 7


def test_a_meter_that_is_never_read_keeps_no_more_than_its_windows() -> None:
    meter = RateMeter(3, 1000)
    for second in range(100):
        meter.record(1, second * 1000)
    assert len(meter._counts) == 3


@attrs.define
class Clock:
    now_ms: int = 0

    def __call__(self) -> int:
        return self.now_ms


def test_a_quota_is_exceeded_until_enough_time_has_passed() -> None:
    clock = Clock()
    quota = ReplicationQuota(1, clock, limit=100)
    quota.record(100)
    assert not quota.is_exceeded
    quota.record(300)
    assert quota.is_exceeded
    clock.now_ms = 3999
    assert quota.is_exceeded
    clock.now_ms = 4000
    assert not quota.is_exceeded


def test_without_a_limit_it_is_never_exceeded() -> None:
    quota = ReplicationQuota(1, Clock())
    quota.record(2**62)
    assert not quota.is_exceeded


@pytest.mark.parametrize(
    ("listed", "covered"),
    [((), False), (("*",), True), (("3:1",), True), (("3:2", "1:1"), False), (("31:1",), False)],
)
def test_it_covers_what_a_topic_lists_for_this_broker(
    listed: tuple[str, ...], covered: bool
) -> None:
    assert ReplicationQuota(1, Clock()).covers(3, frozenset(listed)) is covered
