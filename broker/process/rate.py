"""Measure rates as Kafka's quotas do.

The time-outs of throttled clients follow from these formulas, and clients compare them with their
own figures, so they are Kafka's to the digit (`Rate`, `SampledStat` and `TokenBucket` of its
metrics). Times are of a clock that is never set back, in ms.
"""

from __future__ import annotations

import attrs

MOST_MS = 2**31 - 1
"""The longest time that a response can name. A tiny quota would ask for a longer one."""


@attrs.define
class _Sample:
    """The sum of one window."""

    began_ms: int
    total: float = 0.0


@attrs.define(eq=False)
class SampledRate:
    """A rate per second over the last `windows` windows of `window_ms` each.

    A window begins with the first value that is recorded after the last window, not with the clock.
    """

    windows: int = 11
    window_ms: int = 1000
    _samples: list[_Sample] = attrs.field(factory=list)
    _current: int = 0

    def record(self, value: float, now_ms: int) -> None:
        """Count `value`, which is negative to take back what was counted."""
        self._sample(now_ms).total += value

    def rate(self, now_ms: int) -> float:
        """Return the rate per second."""
        total, elapsed_ms = self._measure(now_ms)
        return 1000 * total / elapsed_ms

    def excess_ms(self, bound: float, now_ms: int) -> int:
        """Return for how long nothing must be recorded until the rate is `bound` again.

        It is 0 while the rate is not above. No wait is long enough for a bound of 0: the whole
        measured time is returned.
        """
        total, elapsed_ms = self._measure(now_ms)
        rate = 1000 * total / elapsed_ms
        if rate <= bound:
            return 0
        if bound <= 0:
            return elapsed_ms
        # Or nothing could be answered, and what was written would be written again
        # (fault strangers-23, was: round((rate - bound) / bound * elapsed_ms)).
        return round(min((rate - bound) / bound * elapsed_ms, MOST_MS))

    def _sample(self, now_ms: int) -> _Sample:
        """Return the sample of now: the current one, or the next one when its window is over."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))

        current = self._samples[self._current]
        if now_ms - current.began_ms < self.window_ms:
            return current

        # The oldest sample makes room, once there are as many as windows.
        self._current = (self._current + 1) % self.windows
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current] = _Sample(now_ms)
        return self._samples[self._current]

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """Return what was recorded, and in how many ms; empty the samples that are too old."""
        span_ms = self.windows * self.window_ms
        total, began_ms = 0.0, now_ms
        for sample in self._samples:
            if now_ms - sample.began_ms >= span_ms:
                sample.began_ms, sample.total = now_ms, 0.0
            total += sample.total
            began_ms = min(began_ms, sample.began_ms)

        # As if all windows but the current one had passed: else a first value would be a high rate.
        elapsed_ms = now_ms - began_ms
        missing = self.windows - 1 - elapsed_ms // self.window_ms
        elapsed_ms += max(missing, 0) * self.window_ms
        return total, elapsed_ms or self.window_ms


@attrs.define(eq=False)
class TokenBucket:
    """Tokens that come at `rate` a second, up to what `windows` windows bring (KIP-599).

    A cost may be taken that is larger than what is there. Then nothing more is granted until the
    debt is paid.
    """

    windows: int = 11
    window_ms: int = 1000
    _tokens: float = 0.0
    _filled_ms: int | None = None

    def take(self, cost: float, rate: float, now_ms: int) -> None:
        """Take `cost` tokens."""
        self._fill(rate, now_ms)
        self._tokens -= cost

    def is_in_debt(self, rate: float, now_ms: int) -> bool:
        """Return whether fewer than no tokens are left."""
        self._fill(rate, now_ms)
        return self._tokens < 0

    def debt_ms(self, rate: float, now_ms: int) -> int:
        """Return how long it takes until the debt is paid; 0 if there is none."""
        self._fill(rate, now_ms)
        if self._tokens >= 0:
            return 0
        if rate <= 0:
            return self.windows * self.window_ms
        # (fault strangers-23, was: round(-self._tokens / rate * 1000)).
        return round(min(-self._tokens / rate * 1000, MOST_MS))

    def _fill(self, rate: float, now_ms: int) -> None:
        most = self.windows * self.window_ms / 1000 * rate
        if self._filled_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + rate * (now_ms - self._filled_ms) / 1000)
        self._filled_ms = now_ms
