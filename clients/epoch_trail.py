"""Remember the leader epochs of what was read of a log, to see whether the log still has it.

An unclean election takes records away, and new ones come to their offsets. Whoever reads on at his
offset misses those that came below it. A leader that is told the epoch of the last record before
that offset says where its log and the reader's part (KIP-320, KIP-595).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

import attrs

from protocol.frozen import frozen

UNKNOWN_EPOCH = -1
MOST = 100
"""Epochs that are remembered: nobody asks for an offset so many elections ago."""


@frozen
class Divergence:
    """A log lacks what was read at or behind `end_offset`; the record before it is of `epoch`."""

    epoch: int
    end_offset: int


@attrs.define(eq=False)
class EpochTrail:
    """The leader epochs of the records that were read, by the offset at which each begins."""

    _begins: list[tuple[int, int]] = attrs.field(factory=list)

    @classmethod
    def behind(cls, offset: int, epoch: int) -> EpochTrail:
        """Return the trail of a reader at `offset` who knows the epoch of the record before it."""
        return cls([] if epoch == UNKNOWN_EPOCH else [(offset - 1, epoch)])

    def note(self, begins: Iterable[tuple[int, int]]) -> None:
        """Note the epochs of batches that were read, each with the offset at which it begins."""
        for offset, epoch in begins:
            if not self._begins or self._begins[-1][1] != epoch:
                self._begins.append((offset, epoch))
        del self._begins[:-MOST]

    def before(self, offset: int) -> int:
        """Return the epoch of the last record before an offset; -1 if it is not known."""
        number = bisect_left(self._begins, (offset, UNKNOWN_EPOCH - 1))
        return self._begins[number - 1][1] if number else UNKNOWN_EPOCH

    def find_place(self, divergence: Divergence) -> Divergence:
        """Return the divergence at the offset from which on the log lacks what was read.

        The log ends its epoch there, or what was read has a later epoch from there on.
        """
        epoch, end = divergence.epoch, divergence.end_offset
        # Or what the log has behind that is never read (fault strangers-64, was: iter(())).
        later = (offset for offset, begun in self._begins if begun > epoch)
        return Divergence(epoch, min(end, next(later, end)))

    def part(self, divergence: Divergence) -> None:
        """Forget what the log does not have any more."""
        end, epoch = divergence.end_offset, divergence.epoch
        kept = [begin for begin in self._begins if begin[0] < end and begin[1] <= epoch]
        self._begins = kept or [(end - 1, epoch)]

    def clear(self) -> None:
        """Forget all."""
        self._begins.clear()
