"""A log that cannot be cleaned is left alone for a while, and the others go on (KAFKA-7215).

The reason may be gone the next time: a disk that was full, a worker that was killed. Or it stays,
as a damaged batch does. So each pause is twice as long as the one before.
"""

from __future__ import annotations

from protocol.frozen import frozen

FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 3_600_000


@frozen
class Quarantine:
    """Why a log is not cleaned, since when, and when the next try is. Times in ms."""

    reason: str
    since_ms: int
    next_try_ms: int
    failures: int = 1


def next_quarantine(before: Quarantine | None, reason: str, now_ms: int) -> Quarantine:
    """Return the quarantine of a log whose cleaning has failed, perhaps not for the first time."""
    failures = before.failures + 1 if before else 1
    since_ms = before.since_ms if before else now_ms
    doublings = min(failures - 1, 20)  # more would be far beyond the longest pause
    pause_ms = min(FIRST_PAUSE_MS << doublings, LONGEST_PAUSE_MS)
    return Quarantine(reason, since_ms, now_ms + pause_ms, failures)
