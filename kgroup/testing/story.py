"""Tell a story from a seed, step by step, until a promise is broken: the base of all stories.

A story is told in lines of when, who and what. Told again from the same seed it is the same to the
last word, whatever Python's hash seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any


class Violation(AssertionError):
    """Something that must never happen did."""

    story: str = ""
    """What happened before, in words, where whoever raised it told a story."""


class Story:
    """The transcript of one seed, and what is counted on the way.

    - `faults`: what went wrong, by kind.
    - `bites`: the effects that this had.
    - `counts`: whatever else is worth a number.
    """

    def __init__(self, seed: int, now_s: Callable[[], float]) -> None:
        self.seed = seed
        self.now_s = now_s
        self.faults: Counter[str] = Counter()
        self.bites: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.told: list[tuple[float, str, Any]] = []
        self._is_closed = False

    def tell(self, who: str, what: Any) -> None:
        """Add a line; `what` is put into words only when somebody wants to read them."""
        if not self._is_closed:
            self.told.append((self.now_s(), who, what))

    def fault(self, kind: str, who: str, what: str) -> None:
        """Count a fault and tell of it."""
        self.faults[kind] += 1
        self.tell("FAULT", f"{kind}: {who} {what}")

    def bite(self, kind: str) -> None:
        """Count an effect of a fault."""
        self.bites[kind] += 1

    def close(self) -> None:
        """Ignore what is told from now on."""
        self._is_closed = True

    def reopen(self) -> None:
        """Take one more thing that is told."""
        self._is_closed = False

    def line(self, at_s: float, who: str, what: Any) -> str | None:
        """Put a line into words; None for one that is not worth any."""
        return f"{at_s:10.6f}  {who:<10} {what}"

    def lines(self) -> list[str]:
        """Return all lines in words."""
        lines = (self.line(at_s, who, what) for at_s, who, what in self.told)
        return [line for line in lines if line is not None]


def listed(counter: Counter[str]) -> str:
    """Return a counter in words, by name."""
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counter.items()))
