"""Replication quotas: how fast a broker gives, or takes, what is being moved (KIP-73), and how
fast it moves replicas between its own directories (KIP-113).

A topic lists which of its replicas are throttled, the broker says how many bytes a second they may
cost it: one quota for what it gives as a leader, one for what it takes as a follower. What is in
sync is never held back, however much it costs: it would fall out of sync.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

UNLIMITED = 2**63 - 1
EVERY_REPLICA = "*"


@attrs.define(eq=False)
class RateMeter:
    """Bytes a second over the last `windows` windows of `window_ms`; it is told the time."""

    windows: int = 11
    window_ms: int = 1000
    _counts: deque[list[int]] = attrs.field(factory=deque)  # [begun at ms, bytes], oldest first
    _bytes: int = 0

    def record(self, size: int, monotonic_ms: int) -> None:
        """So many bytes passed."""
        self._forget(monotonic_ms)
        if not self._counts or monotonic_ms - self._counts[-1][0] >= self.window_ms:
            self._counts.append([monotonic_ms, 0])
        self._counts[-1][1] += size
        self._bytes += size

    def rate(self, monotonic_ms: int) -> float:
        """Since the oldest window there is began, which is at least one window's time."""
        self._forget(monotonic_ms)
        if not self._counts:
            return 0.0
        return 1000 * self._bytes / max(monotonic_ms - self._counts[0][0], self.window_ms)

    def _forget(self, monotonic_ms: int) -> None:
        """Drop the windows that are over, and those of a time that the clock was set back from."""
        span_ms = self.windows * self.window_ms
        while self._counts and not 0 <= monotonic_ms - self._counts[0][0] < span_ms:
            self._bytes -= self._counts.popleft()[1]


@attrs.define(eq=False)
class ReplicationQuota:
    """What broker `local_id` may spend in one role. `limit` is in bytes a second."""

    local_id: int
    monotonic_ms: Callable[[], int]
    meter: RateMeter = attrs.field(factory=RateMeter)
    limit: int = UNLIMITED

    def covers(self, partition: int, listed: frozenset[str]) -> bool:
        """Whether the topic lists this broker's replica of `partition` as throttled."""
        if not listed:
            return False
        return EVERY_REPLICA in listed or f"{partition}:{self.local_id}" in listed

    @property
    def is_exceeded(self) -> bool:
        """Whether more was spent than may be."""
        return self.limit < UNLIMITED and self.meter.rate(self.monotonic_ms()) > self.limit

    def record(self, size: int) -> None:
        """A throttled replica cost so many bytes."""
        self.meter.record(size, self.monotonic_ms())


@attrs.frozen
class ReplicationQuotas:
    """Those of a broker, one for each of its roles, and one for its directories."""

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
        """Without limits yet. Rates are those over so many windows of so many seconds, `between`
        brokers and `within` this one."""

        def quota(windows: int, window_seconds: int) -> ReplicationQuota:
            return ReplicationQuota(
                local_id, monotonic_ms, RateMeter(windows, 1000 * window_seconds)
            )

        return cls(quota(*between), quota(*between), quota(*within))
