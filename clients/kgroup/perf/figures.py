"""Count what a performance tool sends, and write the lines of Kafka's ProducerPerformance."""

from collections import Counter

import attrs

MB = 1024 * 1024
REPORT_MS = 5000
"""Time between two lines of progress, as Kafka has it."""


@attrs.define
class Window:
    """The acknowledged records since a time."""

    begins_ms: float
    count: int = 0
    size: int = 0
    latency_ms: float = 0.0
    max_latency_ms: float = 0.0

    def add(self, size: int, latency_ms: float) -> None:
        """Count one acknowledged record."""
        self.count += 1
        self.size += size
        self.latency_ms += latency_ms
        self.max_latency_ms = max(self.max_latency_ms, latency_ms)

    def per_second(self, now_ms: float) -> tuple[float, float]:
        """Return records and MB a second."""
        elapsed_s = max(now_ms - self.begins_ms, 1.0) / 1000
        return self.count / elapsed_s, self.size / MB / elapsed_s

    @property
    def mean_latency_ms(self) -> float:
        """The mean latency; 0 without records."""
        return self.latency_ms / self.count if self.count else 0.0


@attrs.define(eq=False)
class Figures:
    """The figures of a run; `noun` is what it sends. Times are of a clock of intervals."""

    noun: str
    begins_ms: float
    total: Window = attrs.field(init=False)
    window: Window = attrs.field(init=False)
    failed: int = attrs.field(init=False, default=0)
    first_error: BaseException | None = attrs.field(init=False, default=None)
    # Whole milliseconds, as Kafka's percentiles: their number is bounded, and none is sampled.
    _latencies: Counter[int] = attrs.field(init=False, factory=Counter)

    def __attrs_post_init__(self) -> None:
        self.total = Window(self.begins_ms)
        self.window = Window(self.begins_ms)

    def add(self, size: int, latency_ms: float) -> None:
        """Count one that was acknowledged."""
        self.total.add(size, latency_ms)
        self.window.add(size, latency_ms)
        self._latencies[int(latency_ms)] += 1

    def fail(self, error: BaseException) -> None:
        """Count one that failed, and keep the first error."""
        self.failed += 1
        self.first_error = self.first_error or error

    def progress(self, now_ms: float) -> str:
        """Return the line for the time since the last one, and begin a new window."""
        window = self.window
        rate, mb_rate = window.per_second(now_ms)
        self.window = Window(now_ms)
        return (
            f"{window.count} {self.noun} sent, {rate:.1f} {self.noun}/sec ({mb_rate:.2f} MB/sec), "
            f"{window.mean_latency_ms:.1f} ms avg latency, {window.max_latency_ms:.1f} ms max "
            "latency."
        )

    def summary(self, now_ms: float) -> str:
        """Return the line for the whole run."""
        rate, mb_rate = self.total.per_second(now_ms)
        p50, p95, p99, p999 = (self.percentile(share) for share in (0.5, 0.95, 0.99, 0.999))
        return (
            f"{self.total.count} {self.noun} sent, {rate:f} {self.noun}/sec ({mb_rate:.2f} MB/sec),"
            f" {self.total.mean_latency_ms:.2f} ms avg latency, "
            f"{self.total.max_latency_ms:.2f} ms max latency, "
            f"{p50} ms 50th, {p95} ms 95th, {p99} ms 99th, {p999} ms 99.9th."
        )

    def percentile(self, share: float) -> int:
        """Return the latency that this share of the records had at most, in ms."""
        rank = min(int(share * self.total.count), self.total.count - 1)
        seen = 0
        for latency_ms in sorted(self._latencies):
            seen += self._latencies[latency_ms]
            if seen > rank:
                return latency_ms
        return 0
