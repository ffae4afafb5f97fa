"""Say in the log what a client keeps trying, while it does.

What passes within a second is not worth a line: an election, a topic that was just created. What
lasts longer may last a minute until the caller gets an error, and nobody should wonder that long.
Pure but for the log.
"""

import logging

import attrs

logger = logging.getLogger(__name__)

PATIENCE_S = 1.0
"""Time for which something fails before the log has a line."""
AGAIN_S = 30.0
"""Time between two lines of one thing that goes on failing."""
PAST_S = 5.0
"""Time without a failure after which the next one is another."""
MOST_KNOWN = 100
"""Number of things that are remembered; the oldest are forgotten."""


@attrs.define(eq=False)
class _Trouble:
    since_s: float
    failed_s: float
    told_s: float = float("-inf")


@attrs.define(eq=False)
class Complaints:
    """What fails now, and what the log says of it."""

    _troubles: dict[str, _Trouble] = attrs.field(factory=dict)

    def failed(self, what: str, reason: object, began_s: float, now_s: float) -> None:
        """Note that an attempt failed which will be repeated; `began_s`: when it was first made."""
        trouble = self._troubles.get(what)
        if trouble is None or now_s - trouble.failed_s > PAST_S + (now_s - began_s):
            self._troubles.pop(what, None)
            trouble = self._troubles[what] = _Trouble(began_s, now_s)
            if len(self._troubles) > MOST_KNOWN:
                del self._troubles[next(iter(self._troubles))]

        trouble.failed_s = now_s
        trouble.since_s = min(trouble.since_s, began_s)
        is_told = now_s - trouble.told_s < AGAIN_S
        if now_s - trouble.since_s >= PATIENCE_S and not is_told:
            trouble.told_s = now_s
            logger.warning("%s: %s; trying again", what, reason)
