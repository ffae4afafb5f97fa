"""Count what a broker serves, if its figures are asked for, in plain numbers.

Kafka's distributions favour the last five minutes; ours have the last SAMPLES values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import repeat

import attrs

from protocol.api_key import ApiKey

SAMPLES = 1024
"""Values of which quantiles are made. Kafka keeps 1028."""

QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The percentiles of Kafka's histograms, as jmx_exporter's rules write them."""

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of histograms in seconds; longer times are in one more bucket."""


def find_quantiles(samples: Iterable[float]) -> Sequence[tuple[str, float]]:
    """Return the value at each of QUANTILES; zeros without samples, as in Kafka."""
    ordered = sorted(samples)
    if not ordered:
        return [(quantile, 0.0) for quantile in QUANTILES]
    return [
        (quantile, ordered[int(float(quantile) * (len(ordered) - 1))]) for quantile in QUANTILES
    ]


def _new_samples() -> deque[float]:
    return deque(maxlen=SAMPLES)


@attrs.define(eq=False)
class Buckets:
    """A histogram of times in seconds."""

    numbers: list[int] = attrs.field(factory=lambda: [0] * (len(BUCKETS_S) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one time."""
        self.sum_s += seconds
        self.numbers[bisect_left(BUCKETS_S, seconds)] += 1


@attrs.define(eq=False)
class RequestCounts:
    """The requests of one kind that have ended.

    `local_s` is the time in the handler, `remote_s` the time parked, `total_s` from the first byte
    of work to the response. `errors` counts them by code, 0 is none.
    """

    name: str
    count: int = 0
    total_s: deque[float] = attrs.field(factory=_new_samples)
    local_s: deque[float] = attrs.field(factory=_new_samples)
    remote_s: deque[float] = attrs.field(factory=_new_samples)
    sizes: deque[float] = attrs.field(factory=_new_samples)
    versions: dict[int, int] = attrs.field(factory=dict)
    errors: dict[int, int] = attrs.field(factory=dict)
    buckets: Buckets = attrs.field(factory=Buckets)

    def note(self, version: int, size: int, local_s: float, total_s: float) -> None:
        """Count a request that has its response."""
        self.count += 1
        self.versions[version] = self.versions.get(version, 0) + 1
        self.sizes.append(size)
        self.local_s.append(local_s)
        self.remote_s.append(total_s - local_s)
        self.total_s.append(total_s)

        # `Buckets.observe`, without the call: this is on the way of each request.
        buckets = self.buckets
        buckets.sum_s += total_s
        buckets.numbers[bisect_left(BUCKETS_S, total_s)] += 1

    def note_run(self, version: int, sizes: Sequence[int], took_s: float) -> None:
        """Count requests of one version that were served at once, in `took_s`."""
        number = len(sizes)
        self.count += number
        self.versions[version] = self.versions.get(version, 0) + number
        self.sizes.extend(sizes)
        self.local_s.extend(repeat(took_s, number))
        self.remote_s.extend(repeat(0.0, number))
        self.total_s.extend(repeat(took_s, number))

        buckets = self.buckets
        buckets.sum_s += took_s * number
        buckets.numbers[bisect_left(BUCKETS_S, took_s)] += number


@attrs.define(eq=False)
class TopicCounts:
    """Counts what clients write to a topic and read from it."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    produce_requests: int = 0
    failed_produce_requests: int = 0
    fetch_requests: int = 0
    failed_fetch_requests: int = 0

    def add(self, other: TopicCounts) -> None:
        """Add the numbers of another topic."""
        for field in attrs.fields(TopicCounts):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))


@attrs.define(eq=False)
class Counts:
    """All counts of a broker.

    `rest` has what belongs to no topic that exists: a client may ask for any name, and must not
    make us keep it.
    """

    requests: dict[int, RequestCounts]
    follower_fetches: RequestCounts = attrs.field(factory=lambda: RequestCounts("FetchFollower"))
    topics: dict[str, TopicCounts] = attrs.field(factory=dict)
    rest: TopicCounts = attrs.field(factory=TopicCounts)
    replication_bytes_out: int = 0

    @classmethod
    def of_apis(cls, keys: Iterable[int]) -> Counts:
        """Return counts of zero for these APIs."""
        return cls({key: RequestCounts(request_name(key)) for key in keys})

    def count_append(self, topic: str, size: int, messages: int) -> None:
        """Count a batch that was appended by this broker as the leader."""
        counts = self.topic(topic)
        counts.produce_requests += 1
        counts.bytes_in += size
        counts.messages_in += messages

    def topic(self, name: str) -> TopicCounts:
        """Return the counts of a topic that exists."""
        counts = self.topics.get(name)
        if counts is None:
            counts = self.topics[name] = TopicCounts()
        return counts

    def delete_topics(self, names: Iterable[str]) -> None:
        """Keep of deleted topics only their share of the totals, which never go back."""
        for name in names:
            self.rest.add(self.topics.pop(name))


def request_name(key: int) -> str:
    """Return Kafka's name of an API: "OffsetForLeaderEpoch". Fetches are consumers' here."""
    if key == ApiKey.FETCH:
        return "FetchConsumer"
    return ApiKey(key).name.title().replace("_", "")
