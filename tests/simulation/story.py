"""What happened, told so that it can be read: when, who, what.

Told again from the same seed it is the same to the last word, whatever Python's hash seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from broker.cluster.registration import AlreadyRegistered
from clients.errors import KgroupError
from protocol.errors import ApiError
from zk.api import ZkError

EXPECTED = (OSError, KgroupError, ApiError, ZkError, TimeoutError)
"""What may befall a process when others fail; anything else is a bug of its own."""


class Violation(AssertionError):
    """Something that must never happen did."""


class Story:
    """The transcript of one seed, and what is counted on the way."""

    def __init__(self, seed: int, now_s: Callable[[], float]) -> None:
        self.seed = seed
        self.faults: Counter[str] = Counter()
        self.bites: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self._now_s = now_s
        self._lines: list[str] = []
        self._closed = False

    def tell(self, who: str, what: str) -> None:
        """Add a line."""
        if not self._closed:
            self._lines.append(self._line(who, what))

    def tell_once(self, who: str, what: str) -> None:
        """Add a line that is not there already at this time."""
        if self._lines[-1:] != [self._line(who, what)]:
            self.tell(who, what)

    def _line(self, who: str, what: str) -> str:
        return f"{self._now_s():10.6f}  {who:<10} {what}"

    def fault(self, kind: str, who: str, what: str) -> None:
        """Add a fault."""
        self.faults[kind] += 1
        self.tell("FAULT", f"{kind}: {who} {what}")

    def bite(self, kind: str) -> None:
        """A fault has had an effect."""
        self.bites[kind] += 1

    def expects(self, error: BaseException) -> bool:
        """Whether a process may log this exception."""
        return isinstance(error, EXPECTED)

    def expects_stop(self, error: BaseException) -> bool:
        """Whether a broker may give up on this."""
        return isinstance(error, (*EXPECTED, AlreadyRegistered))

    def close(self) -> None:
        """What is said from now on is of no account."""
        self._closed = True

    def reopen(self) -> None:
        """There is one more thing to say."""
        self._closed = False

    def transcript(self) -> str:
        """All of it."""
        return "\n".join(
            [
                f"seed {self.seed}",
                *self._lines,
                f"faults: {_counted(self.faults)}",
                f"bites: {_counted(self.bites)}",
                f"counts: {_counted(self.counts)}",
                f"again: python -m tests.simulation --tell {self.seed}",
            ]
        )


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in sorted(counter.items())) or "none"
