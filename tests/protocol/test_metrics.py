"""Figures by name and labels."""

from __future__ import annotations

import pytest

from protocol.metrics import DURATION_BOUNDS_MS, Counter, Gauge, Histogram, Metrics


def shown(metrics: Metrics) -> dict[str, object]:
    """Return all figures as text: their names with labels, and their numbers."""
    figures: dict[str, object] = {}
    for sample in metrics.collect():
        labels = ",".join(f"{name}={value}" for name, value in sample.labels.items())
        figure = sample.figure
        number = figure.value if isinstance(figure, Gauge) else figure.count
        figures[f"{sample.name}{{{labels}}}"] = number
    return figures


def test_the_same_name_and_labels_are_the_same_figure() -> None:
    metrics = Metrics()
    metrics.counter("requests_total", broker=1).add()
    metrics.counter("requests_total", broker="1").add(2)
    metrics.counter("requests_total", broker=2).add()
    assert shown(metrics) == {"requests_total{broker=1}": 3, "requests_total{broker=2}": 1}


def test_labels_have_no_order() -> None:
    metrics = Metrics()
    first = metrics.gauge("lag", topic="t", partition=0)
    assert metrics.gauge("lag", partition=0, topic="t") is first


def test_a_name_is_of_one_kind() -> None:
    metrics = Metrics()
    metrics.counter("turns_total")
    with pytest.raises(TypeError, match="turns_total is a Counter, not a Gauge"):
        metrics.gauge("turns_total")


def test_a_watched_gauge_is_read_when_figures_are_collected() -> None:
    metrics, parked = Metrics(), [1, 2]
    metrics.watch("parked", lambda: len(parked))
    assert shown(metrics) == {"parked{}": 2}
    parked.clear()
    assert shown(metrics) == {"parked{}": 0}


def test_figures_of_a_topic_go_with_it() -> None:
    metrics = Metrics()
    metrics.counter("messages_total", topic="gone").add()
    metrics.gauge("lag", topic="gone", partition=3).value = 7
    metrics.watch("size_bytes", lambda: 1, topic="gone")
    metrics.counter("messages_total", topic="stays").add()
    metrics.delete(topic="gone")
    assert shown(metrics) == {"messages_total{topic=stays}": 1}


def test_a_figure_that_was_deleted_begins_at_zero_again() -> None:
    metrics = Metrics()
    metrics.counter("messages_total", topic="t").add(5)
    metrics.delete(topic="t")
    assert metrics.counter("messages_total", topic="t").count == 0


def test_a_histogram_counts_by_upper_bounds() -> None:
    histogram = Histogram()
    for duration_ms in (0.5, 1, 1.5, 30_000, 30_001):
        histogram.observe(duration_ms)
    assert (histogram.count, histogram.max_ms) == (5, 30_001)
    assert histogram.sum_ms == 0.5 + 1 + 1.5 + 30_000 + 30_001
    assert histogram.buckets[:2] == [2, 1]
    assert histogram.buckets[-2:] == [1, 1]
    assert len(histogram.buckets) == len(DURATION_BOUNDS_MS) + 1


def test_counting_is_an_addition_to_a_plain_number() -> None:
    counter = Counter()
    counter.count += 3
    counter.add()
    assert counter.count == 4
