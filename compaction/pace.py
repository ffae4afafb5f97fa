"""The speed of a run, and the times that its phases took. Pure: callers pass the time.

Bytes are paid for as they come: each event says how many were read or written since the last one,
and the run pauses until that much was allowed. An unused allowance expires after BURST_S,
so a run that had to wait does not catch up all at once.
"""

from __future__ import annotations

import attrs

from compaction.job import INDEX, CleaningProgress, Finished

BURST_S = 0.3


@attrs.define(eq=False)
class Throttler:
    """Throttles one run at `bytes_per_second`, begun at `started_s`. All times are of one clock."""

    bytes_per_second: float
    started_s: float
    _paid_until_s: float = attrs.field(init=False)
    _indexed_s: float | None = None

    @_paid_until_s.default
    def _start_of_payment(self) -> float:
        return self.started_s

    def pause_s(self, progress: CleaningProgress, now_s: float) -> float:
        """Return how long to wait before the next step."""
        # Each may be the last of its phase, and the last one says when that ended.
        if progress.phase == INDEX:
            self._indexed_s = now_s

        # What was allowed longer ago than BURST_S is lost.
        owed_s = progress.bytes_done / self.bytes_per_second
        self._paid_until_s = max(self._paid_until_s, now_s - BURST_S) + owed_s
        return max(0.0, self._paid_until_s - now_s)

    def change_speed(self, bytes_per_second: float, now_s: float) -> float:
        """Go on at another speed, also for bytes that are still owed. Returns how long to wait."""
        owed_bytes = max(0.0, self._paid_until_s - now_s) * self.bytes_per_second
        self.bytes_per_second = bytes_per_second
        self._paid_until_s = now_s + owed_bytes / bytes_per_second
        return self._paid_until_s - now_s

    def add_times(self, finished: Finished, now_s: float) -> Finished:
        """Fill in the times that the phases of the run took."""
        indexed_s = self.started_s if self._indexed_s is None else self._indexed_s
        statistics = attrs.evolve(
            finished.statistics,
            map_ms=round((indexed_s - self.started_s) * 1000),
            clean_ms=round((now_s - indexed_s) * 1000),
        )
        return attrs.evolve(finished, statistics=statistics)
