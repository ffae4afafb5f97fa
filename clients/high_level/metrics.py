"""Metrics of a consumer: those of Kafka's old consumer, as an object.

`Meters` count while the consumer works: the counts are figures of `protocol.metrics`, the rates are
computed here. `ConsumerMetrics` shows them at one moment, with other numbers that are computed on
request. Both belong to their connector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from protocol.frozen import frozen
from protocol.metrics import Counter, Histogram, Metrics
from protocol.topic_partition import TopicPartition

TICK_S = 5
# Weight of the last TICK_S seconds in an average over one minute, as in Kafka's meters.
_DECAY = 1 - math.exp(-TICK_S / 60)


# --- what is shown


@frozen
class Rate:
    """A count, and a rate per second as a moving average over about a minute."""

    count: int
    one_minute_rate: float


@frozen
class Timing:
    """The count, rate and duration of an operation."""

    count: int
    one_minute_rate: float
    mean_ms: float
    max_ms: float
    last_ms: float


@frozen(kw_only=True)
class ConsumerMetrics:
    """The numbers of one moment. Lags are in messages, from the next fetch to the high watermark.

    `rebalance_error` is the reason why the group is not stable; None if it is.
    """

    kafka_commits_per_sec: Rate
    zookeeper_commits_per_sec: Rate
    rebalance_rate_and_time: Timing
    rebalance_failures_per_sec: Rate
    """Failed steps of rebalances: refused by ZooKeeper, unreadable offsets, …"""
    rebalance_error: str | None
    unreadable: Mapping[TopicPartition, str]
    """Why partitions that are owned cannot be read now: no leader, or one that does not respond."""
    owned_partitions_count: int
    owned_partitions_count_by_topic: Mapping[str, int]
    fetch_queue_size: Mapping[tuple[str, str], int]
    """By topic ("*" for streams of a filter) and thread id."""
    max_lag: int
    min_fetch_rate: float
    consumer_lag: Mapping[TopicPartition, int]
    requests_per_sec: Mapping[int, Rate]
    """By broker id."""
    broker_bytes_per_sec: Mapping[int, Rate]
    messages_per_sec: Mapping[str, Rate]
    """By topic."""
    bytes_per_sec: Mapping[str, Rate]

    def describe_unreadable(self) -> list[str]:
        """Return a text for each reason for which partitions cannot be read."""
        partitions_of: dict[str, list[TopicPartition]] = {}
        for partition, reason in sorted(self.unreadable.items()):
            partitions_of.setdefault(reason, []).append(partition)
        return [
            f"{first}{f' and {len(more)} more' if more else ''} could not be read: {reason}"
            for reason, (first, *more) in partitions_of.items()
        ]

    def by_name(self) -> dict[str, Any]:
        """Return the numbers by Kafka's names, with tags where several share a name."""
        by_name: dict[str, Any] = {
            "KafkaCommitsPerSec": self.kafka_commits_per_sec,
            "ZooKeeperCommitsPerSec": self.zookeeper_commits_per_sec,
            "RebalanceRateAndTime": self.rebalance_rate_and_time,
            "OwnedPartitionsCount": self.owned_partitions_count,
            "MaxLag": self.max_lag,
            "MinFetchRate": self.min_fetch_rate,
        }

        # Numbers by topic or broker have a tag in their names.
        tagged: list[tuple[str, str, Mapping[Any, Any]]] = [
            ("OwnedPartitionsCount", "topic", self.owned_partitions_count_by_topic),
            ("RequestsPerSec", "brokerId", self.requests_per_sec),
            ("BytesPerSec", "brokerId", self.broker_bytes_per_sec),
            ("MessagesPerSec", "topic", self.messages_per_sec),
            ("BytesPerSec", "topic", self.bytes_per_sec),
        ]

        for name, tag, numbers in tagged:
            by_name |= {f"{name},{tag}={value}": number for value, number in numbers.items()}

        for (topic, thread), size in self.fetch_queue_size.items():
            by_name[f"FetchQueueSize,topic={topic},threadId={thread}"] = size
        for (topic, partition), lag in self.consumer_lag.items():
            by_name[f"ConsumerLag,topic={topic},partition={partition}"] = lag
        return by_name


# --- what is counted


@attrs.define(eq=False)
class Meter:
    """A count, and a rate that is updated every TICK_S. `now` returns seconds."""

    now: Callable[[], float]
    counter: Counter = attrs.field(factory=Counter)
    _since_tick: int = 0
    _rate: float | None = None
    _ticked_at: float = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.now(), takes_self=True)
    )

    @property
    def count(self) -> int:
        """The number of events so far."""
        return self.counter.count

    def mark(self, number: int = 1) -> None:
        """Count `number` events at the present time."""
        self._tick()
        self.counter.count += number
        self._since_tick += number

    def read(self) -> Rate:
        """Return the present values; before the first tick the rate is 0."""
        self._tick()
        return Rate(self.counter.count, self._rate or 0.0)

    def _tick(self) -> None:
        ticks = int((self.now() - self._ticked_at) // TICK_S)
        if ticks < 1:
            return

        # Whole ticks only: the rest of the time counts for the next one.
        self._ticked_at += ticks * TICK_S
        recent_rate = self._since_tick / TICK_S
        self._since_tick = 0

        # The first tick has no average to join.
        rate = (
            recent_rate if self._rate is None else self._rate + _DECAY * (recent_rate - self._rate)
        )

        # Ticks without events only lower the rate.
        self._rate = rate * (1 - _DECAY) ** (ticks - 1)


@attrs.define(eq=False)
class Timer:
    """A Meter of operations that take time."""

    meter: Meter
    histogram: Histogram = attrs.field(factory=Histogram)
    _last_ms: float = 0.0

    def mark(self, took_ms: float) -> None:
        """Count an operation that has ended now."""
        self.meter.mark()
        self.histogram.observe(took_ms)
        self._last_ms = took_ms

    def read(self) -> Timing:
        """Return the present values."""
        rate = self.meter.read()
        mean_ms = self.histogram.sum_ms / rate.count if rate.count else 0.0
        max_ms = self.histogram.max_ms
        return Timing(rate.count, rate.one_minute_rate, mean_ms, max_ms, self._last_ms)


class MeterByLabel(dict[Any, Meter]):
    """Meters of one name by the value of a label, each made when it is first asked for."""

    def __init__(self, make: Callable[..., Meter], name: str, label: str) -> None:
        super().__init__()
        self._make = make
        self._name = name
        self._label = label

    def __missing__(self, value: Any) -> Meter:
        meter = self[value] = self._make(self._name, **{self._label: value})
        return meter


class Meters:
    """The meters of one consumer, which count in `metrics`.

    `now` returns seconds of a clock that only goes forward.
    """

    def __init__(self, now: Callable[[], float], metrics: Metrics | None = None) -> None:
        self.metrics = metrics = Metrics() if metrics is None else metrics

        def meter(name: str, **labels: object) -> Meter:
            return Meter(now, metrics.counter(name, **labels))

        self.kafka_commits = meter("kafka_commits_total")
        self.zookeeper_commits = meter("zookeeper_commits_total")
        self.rebalances = Timer(meter("rebalances_total"), metrics.histogram("rebalance_ms"))
        self.rebalance_failures = meter("rebalance_failures_total")
        self.requests = MeterByLabel(meter, "fetch_requests_total", "broker")
        self.broker_bytes = MeterByLabel(meter, "broker_bytes_total", "broker")
        self.messages = MeterByLabel(meter, "messages_total", "topic")
        self.bytes = MeterByLabel(meter, "bytes_total", "topic")

    def count_fetched(self, topic: str, messages: int, size_bytes: int) -> None:
        """Count the messages and bytes of a topic that a fetch returned."""
        self.messages[topic].mark(messages)
        self.bytes[topic].mark(size_bytes)

    def read(
        self,
        lags: Mapping[TopicPartition, int],
        owned: Mapping[str, int],
        queues: Mapping[tuple[str, str], int],
        rebalance_error: str | None,
        unreadable: Mapping[TopicPartition, str],
    ) -> ConsumerMetrics:
        """Return all numbers as of now."""
        requests = {broker: meter.read() for broker, meter in self.requests.items()}

        # Kafka's MinFetchRate: the broker that is fetched from least often.
        slowest = min((rate.one_minute_rate for rate in requests.values()), default=0.0)

        return ConsumerMetrics(
            kafka_commits_per_sec=self.kafka_commits.read(),
            zookeeper_commits_per_sec=self.zookeeper_commits.read(),
            rebalance_rate_and_time=self.rebalances.read(),
            rebalance_failures_per_sec=self.rebalance_failures.read(),
            rebalance_error=rebalance_error,
            unreadable=unreadable,
            owned_partitions_count=sum(owned.values()),
            owned_partitions_count_by_topic=owned,
            fetch_queue_size=queues,
            max_lag=max(lags.values(), default=0),
            min_fetch_rate=slowest,
            consumer_lag=lags,
            requests_per_sec=requests,
            broker_bytes_per_sec={
                broker: meter.read() for broker, meter in self.broker_bytes.items()
            },
            messages_per_sec={topic: meter.read() for topic, meter in self.messages.items()},
            bytes_per_sec={topic: meter.read() for topic, meter in self.bytes.items()},
        )
