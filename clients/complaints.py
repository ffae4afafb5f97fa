"""Say in the log what a client keeps trying, while it does.

What passes within a second is not worth a line: an election, a topic that was just created. What
lasts longer may last a minute until the caller gets an error, and nobody should wonder that long.
Nor whether it lasts still: the end of what had a line has one too. Pure but for the log and a lock:
the parts of a client, on loops of their own, complain together.
"""

import logging
import threading
from collections import deque

import attrs

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Time for which something fails before the log has a line."""
AGAIN_S = 30.0
"""Time between two lines of one thing that goes on failing."""
PAST_S = 5.0
"""Time without a failure after which the next one is another."""
MOST_TOLD = 10
"""Number of lines in that time on all things: a broker may lead thousands of partitions."""
LEFT_OUT = f" (what else fails is left out for {AGAIN_S:g} s)"
MOST_KNOWN = 100
"""Number of things that are remembered; the oldest are forgotten."""


@attrs.define(eq=False)
class _Trouble:
    since_s: float
    failed_s: float
    told_s: float = float("-inf")
    is_told: bool = False
    """Whether the log has a line of it since it began."""


@attrs.define(eq=False)
class Complaints:
    """What fails now, and what the log says of it. Any thread may say what fails."""

    _troubles: dict[str, _Trouble] = attrs.field(factory=dict)
    _lines_s: deque[float] = attrs.field(factory=lambda: deque(maxlen=MOST_TOLD))
    """The times of the last lines."""
    # A handler of the log may be a client itself, with something to complain of.
    _lock: threading.RLock = attrs.field(factory=threading.RLock)

    def failed(self, what: str, reason: object, began_s: float, now_s: float) -> None:
        """Note that an attempt failed which will be repeated; `began_s`: when it was first made."""
        with self._lock:
            self._fail(what, reason, began_s, now_s)

    def _fail(self, what: str, reason: object, began_s: float, now_s: float) -> None:
        trouble = self._troubles.get(what)
        if trouble is None or now_s - trouble.failed_s > PAST_S + (now_s - began_s):
            self._troubles.pop(what, None)
            trouble = self._troubles[what] = _Trouble(began_s, now_s)
            if len(self._troubles) > MOST_KNOWN:
                del self._troubles[next(iter(self._troubles))]

        trouble.failed_s = now_s
        trouble.since_s = min(trouble.since_s, began_s)
        is_told = now_s - trouble.told_s < AGAIN_S
        if now_s - trouble.since_s >= PATIENCE_S and not is_told and self._has_line(now_s):
            trouble.told_s = now_s
            trouble.is_told = True
            self._lines_s.append(now_s)
            others = "" if self._has_line(now_s) else LEFT_OUT
            # An error has a traceback with all that failed, and whoever keeps the line has it too.
            logger.warning("%s: %s; trying again%s", what, str(reason), others)

    def _has_line(self, now_s: float) -> bool:
        """Return whether there is a line left."""
        lines = self._lines_s
        return len(lines) < MOST_TOLD or now_s - lines[0] >= AGAIN_S

    def succeeded(self, what: str, now_s: float) -> None:
        """Note that an attempt succeeded: the next failure of it is another trouble."""
        with self._lock:
            self._succeed(what, now_s)

    def _succeed(self, what: str, now_s: float) -> None:
        trouble = self._troubles.get(what)
        if trouble is None or trouble.since_s == float("inf"):
            return
        if trouble.is_told:
            logger.warning("%s: works again, after %.0f s", what, now_s - trouble.since_s)
        # What comes and goes has no line more often than what stays.
        trouble.since_s = float("inf")
        trouble.is_told = False

    @property
    def are_any(self) -> bool:
        """Return whether something has failed: a success is news then, and costs a look-up."""
        return bool(self._troubles)
