"""The time for which a log that could not be cleaned is left alone."""

from __future__ import annotations

from compaction.quarantine import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, Quarantine, next_quarantine


def test_pauses_double_from_five_seconds_to_an_hour() -> None:
    current, pauses = None, []
    for _ in range(40):
        current = next_quarantine(current, "why", 1000)
        pauses.append(current.next_try_ms - 1000)
    assert pauses[:4] == [5000, 10_000, 20_000, 40_000]
    assert (FIRST_PAUSE_MS, pauses[9], pauses[10]) == (5000, 2_560_000, LONGEST_PAUSE_MS)
    assert pauses[-1] == LONGEST_PAUSE_MS == 3_600_000


def test_it_is_known_since_when_and_why_at_last() -> None:
    first = next_quarantine(None, "a full disk", 1000)
    assert first == Quarantine("a full disk", 1000, 6000, failures=1)
    assert next_quarantine(first, "a bad batch", 7000) == Quarantine("a bad batch", 1000, 17_000, 2)
