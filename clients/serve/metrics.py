"""The metrics of `kgroup serve`: groups as families of Prometheus, in our names and in others'.

Names of other exporters (`--compat`) come besides ours, so that boards made for them go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clients.groups.group_facts import LogOffsets
from clients.groups.group_view import counted_lag
from clients.serve.snapshot import Item
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

MAX_GROUPS_BY_PARTITION = 1000
"""Groups up to which single partitions have series by default."""
_STATUS = {"UNKNOWN": 0, "OK": 1, "WARN": 2, "ERR": 3}
_PARTITION_STATUS = {
    "UNKNOWN": 0,
    "OK": 1,
    "WARN": 2,
    "STOP": 3,
    "STALL": 4,
    "REWIND": 5,
    "DROPPED": 6,
}


@frozen
class Scrape:
    """The contents of one scrape. `groups` are a group's item, and its partitions' items."""

    cluster_id: str
    is_up: bool
    is_zookeeper_up: bool | None
    """None if none was given."""
    read_at_ms: int
    failures: int
    groups: Sequence[tuple[Item, Sequence[Item]]]
    logs: Mapping[TopicPartition, LogOffsets]
    commits: Mapping[str, int]
    health: Sequence[Item] = ()
    by_partition: bool = True


Families = Callable[[Scrape], Iterator[Metric]]


def metrics_text(scrape: Scrape, compat: Iterable[str] = ()) -> bytes:
    """Return the exposition in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(scrape, [_our_families, *(COMPAT[name] for name in compat)]))
    return generate_latest(registry)


@attrs.frozen(eq=False)
class _Families(Collector):
    scrape: Scrape
    makers: Sequence[Families]

    def collect(self) -> Iterator[Metric]:
        for maker in self.makers:
            yield from maker(self.scrape)


def _gauge(
    name: str, text: str, labels: Sequence[str], samples: Iterable[tuple[Sequence[Any], Any]]
) -> Metric:
    """Return a gauge of those samples that have a value."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric([str(v) if v is not None else "" for v in values], value)
    return family


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def _our_families(scrape: Scrape) -> Iterator[Metric]:
    groups = [item for item, _ in scrape.groups]
    yield _gauge("kgroup_up", "1 if the cluster was read.", (), [((), int(scrape.is_up))])
    yield _gauge(
        "kgroup_zookeeper_up",
        "1 while there is a connection to ZooKeeper.",
        (),
        [((), scrape.is_zookeeper_up)],
    )
    yield _gauge(
        "kgroup_read_timestamp_seconds",
        "When the groups were read.",
        (),
        [((), scrape.read_at_ms / 1000)],
    )
    yield _gauge("kgroup_read_failures", "What could not be read.", (), [((), scrape.failures)])
    yield _gauge("kgroup_groups", "Number of groups.", (), [((), len(groups))])
    yield _gauge(
        "kgroup_group_info",
        "A group: its state and its way to share partitions out.",
        ("group", "state", "protocol"),
        (((g["group"], g["state"], g["protocol"]), 1) for g in groups),
    )

    # Figures of whole groups.
    for name, text, key, scale in (
        ("members", "Members of a group.", "members", 1),
        ("lag", "Records that a group has not consumed.", "lag", 1),
        ("lag_seconds", "Age of the oldest record not consumed.", "time_lag_ms", 1000),
        ("commit_timestamp_seconds", "When a group committed last.", "committed_at_ms", 1000),
    ):
        yield _gauge(
            f"kgroup_group_{name}",
            text,
            ("group",),
            ((((g["group"],), None if g[key] is None else g[key] / scale)) for g in groups),
        )
    commits = CounterMetricFamily("kgroup_group_commits", "Commits of a group.", labels=("group",))
    for group in groups:
        commits.add_metric([group["group"]], scrape.commits.get(group["group"], 0))
    yield commits
    if scrape.health:
        verdicts = {item["group"]: item["verdict"] for item in scrape.health}
        yield _gauge(
            "kgroup_group_status",
            "0 unknown, 1 OK, 2 WARN, 3 ERR.",
            ("group",),
            (((group,), _STATUS[verdict]) for group, verdict in verdicts.items()),
        )

    # Figures of single partitions.
    if scrape.by_partition:
        labels = ("group", "topic", "partition", "client_id", "host")
        for name, text, key, scale in (
            ("current_offset", "The next offset to consume.", "current_offset", 1),
            ("lag", "Records that the group has not consumed.", "lag", 1),
            ("lag_seconds", "Age of the first record not consumed.", "time_lag_ms", 1000),
        ):
            yield _gauge(
                f"kgroup_partition_{name}",
                text,
                labels,
                (
                    ([p[label] for label in labels], None if p[key] is None else p[key] / scale)
                    for _, partitions in scrape.groups
                    for p in partitions
                ),
            )
        yield from _log_families(
            scrape, "kgroup_log_start_offset", "kgroup_log_end_offset", ("topic", "partition"), ()
        )


def _log_families(
    scrape: Scrape, start: str, end: str, labels: Sequence[str], first: Sequence[str]
) -> Iterator[Metric]:
    yield _gauge(
        start,
        "First offset of a log.",
        labels,
        (((*first, *partition), log.start) for partition, log in scrape.logs.items()),
    )
    yield _gauge(
        end,
        "Offset behind the last record of a log.",
        labels,
        (((*first, *partition), log.end) for partition, log in scrape.logs.items()),
    )


def _topics(partitions: Sequence[Item], key: str) -> dict[str, int]:
    sums: dict[str, int] = {}
    for item in partitions:
        sums[item["topic"]] = sums.get(item["topic"], 0) + max(item[key] or 0, 0)
    return sums


def _lag_exporter_families(scrape: Scrape) -> Iterator[Metric]:
    cluster, prefix = scrape.cluster_id, "kafka_consumergroup_group"
    labels = ("cluster_name", "group", "topic", "partition", "member_host", "consumer_id")
    rows = [
        ((cluster, *(p[k] for k in ("group", "topic", "partition", "host", "consumer_id",
                                    "client_id"))), p)
        for _, partitions in scrape.groups
        for p in partitions
    ]  # fmt: skip
    for name, key, scale in (
        ("offset", "current_offset", 1),
        ("lag", "lag", 1),
        ("lag_seconds", "time_lag_ms", 1000),
    ):
        samples = ((v, None if p[key] is None else p[key] / scale) for v, p in rows)
        yield _gauge(f"{prefix}_{name}", f"{key} of a partition.", (*labels, "client_id"), samples)

    by_group = ("cluster_name", "group")
    lags = [(g, [counted_lag(p) for p in parts]) for g, parts in scrape.groups]
    yield _gauge(
        f"{prefix}_max_lag",
        "Largest lag of a partition.",
        by_group,
        (((cluster, g["group"]), max(own, default=0)) for g, own in lags),
    )
    yield _gauge(
        f"{prefix}_max_lag_seconds",
        "Largest time lag of a partition.",
        by_group,
        (((cluster, g["group"]), _seconds(g["time_lag_ms"])) for g, _ in lags),
    )
    yield _gauge(
        f"{prefix}_sum_lag",
        "Lag of a group.",
        by_group,
        (((cluster, g["group"]), sum(own)) for g, own in lags),
    )
    yield _gauge(
        f"{prefix}_topic_sum_lag",
        "Lag of a group in a topic.",
        (*by_group, "topic"),
        (
            ((cluster, g["group"], topic), lag)
            for g, parts in scrape.groups
            for topic, lag in _topics(parts, "lag").items()
        ),
    )
    yield from _log_families(
        scrape,
        "kafka_partition_earliest_offset",
        "kafka_partition_latest_offset",
        ("cluster_name", "topic", "partition"),
        (cluster,),
    )


def _kminion_families(scrape: Scrape) -> Iterator[Metric]:
    prefix = "kminion_kafka_consumer_group"
    yield _gauge(
        f"{prefix}_info",
        "A group.",
        ("group_id", "protocol", "state"),
        (((g["group"], g["protocol"], g["state"]), 1) for g, _ in scrape.groups),
    )
    yield _gauge(
        f"{prefix}_members",
        "Members of a group.",
        ("group_id",),
        (((g["group"],), g["members"]) for g, _ in scrape.groups),
    )
    yield _gauge(
        f"{prefix}_topic_partition_lag",
        "Lag of a partition.",
        ("group_id", "topic_name", "partition_id"),
        (
            ((g["group"], p["topic"], p["partition"]), p["lag"])
            for g, partitions in scrape.groups
            for p in partitions
        ),
    )
    for name, key in (("topic_lag", "lag"), ("topic_offset_sum", "current_offset")):
        yield _gauge(
            f"{prefix}_{name}",
            f"Sum of {key} over a topic's partitions.",
            ("group_id", "topic_name"),
            (
                ((g["group"], topic), value)
                for g, partitions in scrape.groups
                for topic, value in _topics(partitions, key).items()
            ),
        )
    commits = CounterMetricFamily(
        f"{prefix}_offset_commits", "Commits of a group.", labels=("group_id",)
    )
    for group, _ in scrape.groups:
        commits.add_metric([group["group"]], scrape.commits.get(group["group"], 0))
    yield commits
    yield from _log_families(
        scrape,
        "kminion_kafka_topic_partition_low_water_mark",
        "kminion_kafka_topic_partition_high_water_mark",
        ("topic_name", "partition_id"),
        (),
    )


def _burrow_families(scrape: Scrape) -> Iterator[Metric]:
    cluster, prefix = scrape.cluster_id, "burrow_kafka_consumer"
    by_group, by_partition = ("cluster", "consumer_group"), ("topic", "partition")
    yield _gauge(
        f"{prefix}_lag_total",
        "Lag of a group.",
        by_group,
        (((cluster, g["group"]), g["lag"]) for g, _ in scrape.groups),
    )
    verdicts = {item["group"]: item["verdict"] for item in scrape.health}
    yield _gauge(
        f"{prefix}_status",
        "1 OK, 2 WARN, 3 ERR.",
        by_group,
        (((cluster, group), _STATUS[verdict] or None) for group, verdict in verdicts.items()),
    )
    for name, key in (("current_offset", "current_offset"), ("partition_lag", "lag")):
        yield _gauge(
            f"{prefix}_{name}",
            f"{key} of a partition.",
            (*by_group, *by_partition),
            (
                ((cluster, g["group"], p["topic"], p["partition"]), p[key])
                for g, partitions in scrape.groups
                for p in partitions
            ),
        )
    yield _gauge(
        "burrow_kafka_topic_partition_status",
        "1 OK, 2 WARN, 3 STOP, 4 STALL, 5 REWIND.",
        (*by_group, *by_partition),
        (
            ((cluster, h["group"], h["topic"], h["partition"]), _PARTITION_STATUS[h["status"]])
            for h in scrape.health
        ),
    )
    yield _gauge(
        "burrow_kafka_topic_partition_offset",
        "Offset behind the last record of a log.",
        ("cluster", *by_partition),
        (((cluster, *partition), log.end) for partition, log in scrape.logs.items()),
    )


COMPAT: Mapping[str, Families] = {
    "lag-exporter": _lag_exporter_families,
    "kminion": _kminion_families,
    "burrow": _burrow_families,
}
