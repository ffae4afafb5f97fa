"""Figures of a process: counters, gauges and histograms, by name and labels.

A broker, a producer and a connector have one `Metrics` each, and hand it to their parts. A part
asks for its figures once and keeps them; counting is then an addition to a plain number. Nothing
here reads a clock, waits or writes: whoever shows figures calls `collect`.

Names are in snake case with the unit last (`_total` for what only grows, `_ms`, `_bytes`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import attrs

from protocol.frozen import frozen

Labels = tuple[tuple[str, str], ...]
"""Label names and values, ordered by name."""

DURATION_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000)
"""Upper bounds of a histogram's buckets; longer durations are in one more bucket."""


@attrs.define(eq=False)
class Counter:
    """A number of events, which only grows."""

    count: int = 0

    def add(self, number: int = 1) -> None:
        """Count `number` events."""
        self.count += number


@attrs.define(eq=False)
class Gauge:
    """A number that goes up and down."""

    value: float = 0.0


@attrs.define(eq=False)
class Histogram:
    """Durations in ms: how many, their sum, the longest, and how many in each bucket."""

    count: int = 0
    sum_ms: float = 0.0
    max_ms: float = 0.0
    buckets: list[int] = attrs.field(factory=lambda: [0] * (len(DURATION_BOUNDS_MS) + 1))

    def observe(self, duration_ms: float) -> None:
        """Count one duration."""
        self.count += 1
        self.sum_ms += duration_ms
        self.max_ms = max(self.max_ms, duration_ms)
        # A duration equal to a bound belongs to the bucket of that bound.
        self.buckets[bisect_left(DURATION_BOUNDS_MS, duration_ms)] += 1


Figure = Counter | Gauge | Histogram
F = TypeVar("F", Counter, Gauge, Histogram)


@frozen
class Sample:
    """One figure at one moment, under its name and labels."""

    name: str
    labels: Mapping[str, str]
    figure: Figure


@attrs.define(eq=False)
class Metrics:
    """The figures of one process. The same name and labels always give the same figure."""

    _figures: dict[tuple[str, Labels], Figure] = attrs.field(factory=dict)
    _read: dict[tuple[str, Labels], Callable[[], float]] = attrs.field(factory=dict)

    def counter(self, name: str, **labels: object) -> Counter:
        """Return a counter, a new one at its first use. Raises TypeError for another kind."""
        return self._figure(Counter, name, labels)

    def gauge(self, name: str, **labels: object) -> Gauge:
        """Return a gauge, a new one at its first use. Raises TypeError for another kind."""
        return self._figure(Gauge, name, labels)

    def histogram(self, name: str, **labels: object) -> Histogram:
        """Return a histogram, a new one at its first use. Raises TypeError for another kind."""
        return self._figure(Histogram, name, labels)

    def watch(self, name: str, read: Callable[[], float], **labels: object) -> None:
        """Have `collect` read a gauge from its owner, who need not keep it up to date here."""
        self._read[name, _as_labels(labels)] = read

    def delete(self, **labels: object) -> None:
        """Delete all figures with these labels, such as those of a topic that is gone."""
        # A figure goes with all that have these labels, also if it has further ones.
        gone = set(_as_labels(labels))
        for key in [*self._figures, *self._read]:
            if gone <= set(key[1]):
                self._figures.pop(key, None)
                self._read.pop(key, None)

    def collect(self) -> Iterator[Sample]:
        """Yield all figures as they are now, by name and labels."""
        for name, labels in sorted(self._figures.keys() | self._read.keys()):
            read = self._read.get((name, labels))
            figure = Gauge(read()) if read is not None else self._figures[name, labels]
            yield Sample(name, dict(labels), figure)

    def _figure(self, kind: type[F], name: str, labels: Mapping[str, object]) -> F:
        key = (name, _as_labels(labels))
        figure = self._figures.setdefault(key, kind())
        if not isinstance(figure, kind):
            raise TypeError(f"{name} is a {type(figure).__name__}, not a {kind.__name__}")
        return figure


def _as_labels(labels: Mapping[str, object]) -> Labels:
    return tuple(sorted((name, str(value)) for name, value in labels.items()))
