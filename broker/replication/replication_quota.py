"""Limit the rate of replication between brokers (KIP-73) and between log directories (KIP-113).

A topic lists its throttled replicas. A broker has two quotas for them, in bytes per second: one for
what it sends as a leader, one for what it fetches as a follower. A replica in the ISR is counted
but never held back, because it would fall out of the ISR.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from protocol.frozen import frozen
from protocol.special_values import MAX_LONG

UNLIMITED = MAX_LONG
EVERY_REPLICA = "*"


@attrs.define(eq=False)
class RateMeter:
    """Measures bytes per second over the last `windows` windows of `window_ms` each."""

    # Kafka's defaults of replication.quota.window.num and .window.size.seconds.
    windows: int = 11
    window_ms: int = 1000
    _counts: deque[list[int]] = attrs.field(factory=deque)  # [begun at ms, bytes], oldest first
    _bytes: int = 0

    def record(self, size: int, monotonic_ms: int) -> None:
        """Count `size` bytes at this time."""
        self._drop_windows(monotonic_ms)

        # The newest window is over: begin another.
        if not self._counts or monotonic_ms - self._counts[-1][0] >= self.window_ms:
            self._counts.append([monotonic_ms, 0])
        self._counts[-1][1] += size
        self._bytes += size

    def rate(self, monotonic_ms: int) -> float:
        """Return the rate since the beginning of the oldest window, over one window at least."""
        self._drop_windows(monotonic_ms)
        if not self._counts:
            return 0.0
        return 1000 * self._bytes / max(monotonic_ms - self._counts[0][0], self.window_ms)

    def _drop_windows(self, monotonic_ms: int) -> None:
        """Drop the windows that are too old, and those from before the clock was set back."""
        span_ms = self.windows * self.window_ms
        while self._counts and not 0 <= monotonic_ms - self._counts[0][0] < span_ms:
            self._bytes -= self._counts.popleft()[1]


@attrs.define(eq=False)
class ReplicationQuota:
    """The quota of broker `local_id` in one role. `limit` is in bytes per second."""

    local_id: int
    monotonic_ms: Callable[[], int]
    meter: RateMeter = attrs.field(factory=RateMeter)
    limit: int = UNLIMITED

    def covers(self, partition: int, listed: frozenset[str]) -> bool:
        """Return whether the topic lists this broker's replica of `partition` as throttled."""
        if not listed:
            return False
        return EVERY_REPLICA in listed or f"{partition}:{self.local_id}" in listed

    @property
    def is_exceeded(self) -> bool:
        """True while the measured rate is above the limit."""
        return self.limit < UNLIMITED and self.meter.rate(self.monotonic_ms()) > self.limit

    def record(self, size: int) -> None:
        """Count `size` bytes of a throttled replica."""
        self.meter.record(size, self.monotonic_ms())


@frozen
class ReplicationQuotas:
    """The quotas of a broker: one for each of its roles, and one for its directories."""

    leader: ReplicationQuota
    follower: ReplicationQuota
    directories: ReplicationQuota

    @classmethod
    def measured(
        cls,
        local_id: int,
        monotonic_ms: Callable[[], int],
        *,
        between: tuple[int, int],
        within: tuple[int, int],
    ) -> ReplicationQuotas:
        """Return quotas without limits.

        `between` brokers and `within` this one are pairs: the number of windows over which a rate
        is measured, and their length in seconds.
        """

        def quota(windows: int, window_seconds: int) -> ReplicationQuota:
            return ReplicationQuota(
                local_id, monotonic_ms, RateMeter(windows, 1000 * window_seconds)
            )

        return cls(quota(*between), quota(*between), quota(*within))
