"""What a consumer can say of itself in numbers: the metrics of Kafka's old consumer, as an object.

`Meters` count while the consumer works; `ConsumerMetrics` is what they show at one moment, together
with what is worked out only when somebody looks. Both live and die with their connector: there is
no registry to leave them in.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from protocol.topic_partition import TopicPartition

TICK_S = 5
_DECAY = 1 - math.exp(-TICK_S / 60)


@attrs.frozen
class Rate:
    """How many there were, and how many a second of late: a mean that forgets within minutes."""

    count: int
    one_minute_rate: float


@attrs.frozen
class Timing:
    """How often something was done, and how long it took."""

    count: int
    one_minute_rate: float
    mean_ms: float
    max_ms: float
    last_ms: float


@attrs.frozen(kw_only=True)
class ConsumerMetrics:
    """One moment's numbers. Lags are in messages, from the high watermark to what is fetched next.

    `rebalance_error`: what keeps the group from being settled, None when nothing does.
    """

    kafka_commits_per_sec: Rate
    zookeeper_commits_per_sec: Rate
    rebalance_rate_and_time: Timing
    rebalance_failures_per_sec: Rate
    """Steps of a rebalance that failed: refused by ZooKeeper, offsets that could not be read, …"""
    rebalance_error: str | None
    owned_partitions_count: int
    owned_partitions_count_by_topic: Mapping[str, int]
    fetch_queue_size: Mapping[tuple[str, str], int]
    """By topic ("*" for a filter's) and thread id."""
    max_lag: int
    min_fetch_rate: float
    consumer_lag: Mapping[TopicPartition, int]
    requests_per_sec: Mapping[int, Rate]
    """By broker id."""
    broker_bytes_per_sec: Mapping[int, Rate]
    messages_per_sec: Mapping[str, Rate]
    """By topic."""
    bytes_per_sec: Mapping[str, Rate]

    def by_name(self) -> dict[str, Any]:
        """Under Kafka's names, with the tags that tell several of one name apart."""
        named: dict[str, Any] = {
            "KafkaCommitsPerSec": self.kafka_commits_per_sec,
            "ZooKeeperCommitsPerSec": self.zookeeper_commits_per_sec,
            "RebalanceRateAndTime": self.rebalance_rate_and_time,
            "OwnedPartitionsCount": self.owned_partitions_count,
            "MaxLag": self.max_lag,
            "MinFetchRate": self.min_fetch_rate,
        }
        tagged: list[tuple[str, str, Mapping[Any, Any]]] = [
            ("OwnedPartitionsCount", "topic", self.owned_partitions_count_by_topic),
            ("RequestsPerSec", "brokerId", self.requests_per_sec),
            ("BytesPerSec", "brokerId", self.broker_bytes_per_sec),
            ("MessagesPerSec", "topic", self.messages_per_sec),
            ("BytesPerSec", "topic", self.bytes_per_sec),
        ]
        for name, tag, numbers in tagged:
            named |= {f"{name},{tag}={value}": number for value, number in numbers.items()}
        for (topic, thread), size in self.fetch_queue_size.items():
            named[f"FetchQueueSize,topic={topic},threadId={thread}"] = size
        for (topic, partition), lag in self.consumer_lag.items():
            named[f"ConsumerLag,topic={topic},partition={partition}"] = lag
        return named


@attrs.define(eq=False)
class Meter:
    """Counts, and keeps a rate that is brought up to date every TICK_S. `now`: seconds."""

    now: Callable[[], float]
    count: int = 0
    _since_tick: int = 0
    _rate: float | None = None
    _ticked_at: float = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.now(), takes_self=True)
    )

    def mark(self, number: int = 1) -> None:
        """So many have happened now."""
        self._tick()
        self.count += number
        self._since_tick += number

    def read(self) -> Rate:
        """As of now; before the first tick the rate is 0."""
        self._tick()
        return Rate(self.count, self._rate or 0.0)

    def _tick(self) -> None:
        ticks = int((self.now() - self._ticked_at) // TICK_S)
        if ticks < 1:
            return
        self._ticked_at += ticks * TICK_S
        of_late = self._since_tick / TICK_S
        self._since_tick = 0
        rate = of_late if self._rate is None else self._rate + _DECAY * (of_late - self._rate)
        self._rate = rate * (1 - _DECAY) ** (ticks - 1)


@attrs.define(eq=False)
class Timer:
    """A Meter of things that take time."""

    meter: Meter
    _total_ms: float = 0.0
    _max_ms: float = 0.0
    _last_ms: float = 0.0

    def mark(self, took_ms: float) -> None:
        """One has ended now."""
        self.meter.mark()
        self._total_ms += took_ms
        self._max_ms = max(self._max_ms, took_ms)
        self._last_ms = took_ms

    def read(self) -> Timing:
        """As of now."""
        rate = self.meter.read()
        mean_ms = self._total_ms / rate.count if rate.count else 0.0
        return Timing(rate.count, rate.one_minute_rate, mean_ms, self._max_ms, self._last_ms)


class Meters:
    """What one consumer counts. `now`: seconds, on any clock that only goes forward."""

    def __init__(self, now: Callable[[], float]) -> None:
        def meter() -> Meter:
            return Meter(now)

        self.kafka_commits = meter()
        self.zookeeper_commits = meter()
        self.rebalances = Timer(meter())
        self.rebalance_failures = meter()
        self.requests: defaultdict[int, Meter] = defaultdict(meter)
        self.broker_bytes: defaultdict[int, Meter] = defaultdict(meter)
        self.messages: defaultdict[str, Meter] = defaultdict(meter)
        self.bytes: defaultdict[str, Meter] = defaultdict(meter)

    def fetched(self, topic: str, messages: int, size_bytes: int) -> None:
        """A fetch has brought this of a topic."""
        self.messages[topic].mark(messages)
        self.bytes[topic].mark(size_bytes)

    def read(
        self,
        lags: Mapping[TopicPartition, int],
        owned: Mapping[str, int],
        queues: Mapping[tuple[str, str], int],
        rebalance_error: str | None,
    ) -> ConsumerMetrics:
        """All numbers, as of now."""
        requests = {broker: meter.read() for broker, meter in self.requests.items()}
        return ConsumerMetrics(
            kafka_commits_per_sec=self.kafka_commits.read(),
            zookeeper_commits_per_sec=self.zookeeper_commits.read(),
            rebalance_rate_and_time=self.rebalances.read(),
            rebalance_failures_per_sec=self.rebalance_failures.read(),
            rebalance_error=rebalance_error,
            owned_partitions_count=sum(owned.values()),
            owned_partitions_count_by_topic=owned,
            fetch_queue_size=queues,
            max_lag=max(lags.values(), default=0),
            min_fetch_rate=min((r.one_minute_rate for r in requests.values()), default=0.0),
            consumer_lag=lags,
            requests_per_sec=requests,
            broker_bytes_per_sec={b: meter.read() for b, meter in self.broker_bytes.items()},
            messages_per_sec={topic: meter.read() for topic, meter in self.messages.items()},
            bytes_per_sec={topic: meter.read() for topic, meter in self.bytes.items()},
        )
