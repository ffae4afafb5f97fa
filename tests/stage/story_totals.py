"""What the commands that tell stories by the thousand read and print."""

from __future__ import annotations

from collections import Counter


def most_common(counter: Counter[str]) -> str:
    """Return a counter in words, the largest number first."""
    return ", ".join(f"{number} {kind}" for kind, number in counter.most_common())


def seeds_of(wanted: str) -> range:
    """Return the seeds of `42`, or of `0:100`, which is without the last."""
    first, _, last = wanted.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)
