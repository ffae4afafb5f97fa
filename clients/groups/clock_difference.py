"""Find out how far the brokers' clocks are from this machine's, by the records of groups. Pure.

Brokers give them their times, and so commits theirs: a clock that differs makes commits look older
or younger than they are. A record that a look sees for the first time was written since the look
before: the brokers' time is that of the record, or later by at most the time between both looks.
One look alone tells only of brokers that are ahead: nothing has a time in their future.
"""

from __future__ import annotations

from collections.abc import Iterable

from clients.groups.group_view import duration
from clients.groups.lag import MIN_DIFFERENCE_MS

MAX_ELAPSED_MS = 60_000
"""Time between two looks, at most, that tell something of clocks."""


def measure_ahead(newest_ms: int, now_ms: int, elapsed_ms: float) -> int | None:
    """Return how far the brokers' clocks are ahead of `now_ms`; negative where they are behind.

    `newest_ms` is the time of the newest record that was written since the last look, `elapsed_ms`
    ago; -1 without any. None if it does not tell.
    """
    if newest_ms < 0 or elapsed_ms > MAX_ELAPSED_MS:
        return None
    ahead_ms = newest_ms - now_ms
    return ahead_ms if abs(ahead_ms) > MIN_DIFFERENCE_MS else 0


def latest_time(now_ms: int, times_ms: Iterable[int]) -> int:
    """Return the later one of now and the newest commit, whose broker has seen that time."""
    return max(now_ms, max(times_ms, default=now_ms))


def describe_future(ahead_ms: int) -> str | None:
    """Say that a commit is dated in the future; None where it is not, or by little."""
    if ahead_ms <= MIN_DIFFERENCE_MS:
        return None
    return (
        f"clocks differ: a commit is dated {duration(ahead_ms)} after the time of this machine; "
        "ages and times that are left are wrong by as much, or unknown, until both follow NTP"
    )
