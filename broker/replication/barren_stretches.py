"""Stretches of a log that have no message for readers of the old formats.

Such a reader knows the offsets of messages alone. Where transactions have left markers, and nothing
else, it asks from the same offset again; what was found to have nothing is not read again for it.
"""

from __future__ import annotations

from bisect import bisect_right

import attrs

MOST_STRETCHES = 1000
"""Stretches of one log that are remembered; with more, all but the last one are forgotten."""


@attrs.define(eq=False)
class BarrenStretches:
    """The stretches, each from an offset up to another one, in their order, none beside the next.

    None is above the high watermark: what is not committed may be truncated, and other records get
    its offsets.
    """

    _starts: list[int] = attrs.field(factory=list)
    _ends: list[int] = attrs.field(factory=list)

    def behind(self, offset: int) -> int:
        """Return the offset from which there may be a message, for a reader at `offset`."""
        number = bisect_right(self._starts, offset) - 1
        return max(offset, self._ends[number]) if number >= 0 else offset

    def add(self, start: int, end: int) -> None:
        """Note that a reader between `start` and `end`, exclusive, has nothing before `end`."""
        if end <= start:
            return
        first = bisect_right(self._starts, start) - 1
        # It may begin within one, or at its end.
        if first < 0 or self._ends[first] < start:
            first += 1
        behind = bisect_right(self._starts, end)
        if first < behind:
            start = min(start, self._starts[first])
            end = max(end, self._ends[behind - 1])
        self._starts[first:behind] = [start]
        self._ends[first:behind] = [end]

        if len(self._starts) > MOST_STRETCHES:
            self._starts, self._ends = [start], [end]

    def clear(self) -> None:
        """Forget them all, because offsets may have other records."""
        self._starts.clear()
        self._ends.clear()
