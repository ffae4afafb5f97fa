"""The verdict on `__consumer_offsets`, from facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from clients.watching.offsets_topic_verdict import (
    GroupTally,
    PartitionFacts,
    TopicFacts,
    judge_topic,
    size_text,
    summarize,
)

MIB = 1 << 20
HOUR = 3_600_000
NOW = 1_700_000_000_000
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * MIB),
    "min.cleanable.dirty.ratio": "0.5",
}
BROKER = {"log.cleaner.enable": "true", "offsets.retention.minutes": "10080"}
PARTITION = PartitionFacts(
    7,
    1,
    (1, 2, 3),
    (1, 2, 3),
    replica_bytes=60 * MIB,
    read_bytes=60 * MIB,
    clean_bytes=MIB,
    records=600_000,
    keys=50,
    repeated_since_ms=NOW - HOUR,
    last_written_ms=NOW,
    read_ms=700,
)


def facts(partition: Mapping[str, Any] | None = None, **changes: Any) -> TopicFacts:
    healthy = TopicFacts(
        [attrs.evolve(PARTITION, **(partition or {}))],
        {"orders": GroupTally(50, 600)},
        [1, 2, 3],
        SETTINGS,
        dict.fromkeys([1, 2, 3], BROKER),
        NOW,
        60_000,
    )
    return attrs.evolve(healthy, **changes)


def wrong(topic: TopicFacts) -> list[tuple[str, str]]:
    return [
        (row["subject"], row["verdict"]) for row in judge_topic(topic) if row["verdict"] != "OK"
    ]


P7 = "__consumer_offsets-7"
STOPPED = {"read_bytes": 900 * MIB, "replica_bytes": 900 * MIB}
DAY_KEPT = {**SETTINGS, "min.compaction.lag.ms": str(24 * HOUR)}


@pytest.mark.fault("strangers-176")
@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        pytest.param(facts(), [], id="one dirty segment that is written is healthy"),
        pytest.param(
            facts({"read_bytes": 190 * MIB}), [], id="a segment that was closed just now waits"
        ),
        pytest.param(facts(STOPPED), [(P7, "ERR")], id="eight closed dirty segments"),
        pytest.param(
            facts({**STOPPED, "clean_bytes": 500 * MIB}), [], id="below the ratio of cleaning"
        ),
        pytest.param(
            facts({**STOPPED, "young_bytes": 850 * MIB}, settings=DAY_KEPT),
            [],
            id="all within min.compaction.lag.ms",
        ),
        pytest.param(
            facts(STOPPED, settings={}, broker_settings={}),
            [(P7, "ERR")],
            id="a broker that tells no settings",
        ),
        pytest.param(
            facts(settings={**SETTINGS, "max.compaction.lag.ms": str(HOUR // 3)}),
            [(P7, "ERR")],
            id="older than max.compaction.lag.ms",
        ),
        pytest.param(
            facts({"open_since_ms": NOW - HOUR}), [(P7, "ERR")], id="a transaction that hangs"
        ),
        pytest.param(
            facts({"open_since_ms": NOW - HOUR, "repeated_since_ms": None}),
            [(P7, "ERR")],
            id="a transaction that hangs where no key comes again",
        ),
        pytest.param(facts({"open_since_ms": NOW - 60_000}), [], id="a transaction in flight"),
        pytest.param(facts({"leader": -1, "isr": ()}), [(P7, "ERR")], id="no leader"),
        pytest.param(facts({"isr": (1, 3)}), [(P7, "WARN")], id="a replica is not in sync"),
        pytest.param(facts({"error": "no time"}), [(P7, "ERR")], id="not read"),
        pytest.param(
            facts({"error": "CRC", "is_damaged": True}), [(P7, "ERR")], id="a damaged batch"
        ),
        pytest.param(
            facts({"replicas": (1,), "isr": (1,)}), [("replication factor", "WARN")], id="a replica"
        ),
        pytest.param(
            facts({"replicas": (1,), "isr": (1,)}, brokers=[1]), [], id="a replica, a broker"
        ),
        pytest.param(
            facts(settings={**SETTINGS, "cleanup.policy": "compact,delete"}),
            [("cleanup.policy", "ERR")],
            id="retention deletes offsets",
        ),
        pytest.param(
            facts(settings={**SETTINGS, "segment.bytes": str(1 << 30)}),
            [("segment.bytes", "WARN")],
            id="segments of 1 GiB",
        ),
        pytest.param(
            facts(settings={**SETTINGS, "min.cleanable.dirty.ratio": "0.95"}),
            [("min.cleanable.dirty.ratio", "WARN")],
            id="cleaned too seldom",
        ),
        pytest.param(
            facts(broker_settings={2: {**BROKER, "log.cleaner.enable": "false"}}),
            [("broker 2", "ERR")],
            id="a cleaner that is off",
        ),
        pytest.param(
            facts(broker_settings={2: {**BROKER, "offsets.retention.minutes": "1440"}}),
            [("broker 2", "WARN")],
            id="offsets expire in a day",
        ),
        pytest.param(facts(silent={2: "refused"}), [("broker 2", "ERR")], id="a dead broker"),
        pytest.param(
            facts({"read_bytes": 900 * MIB, "clean_bytes": 880 * MIB, "read_ms": 70_000}),
            [("broker 1", "WARN")],
            id="a load of more than a minute",
        ),
        pytest.param(facts({"read_ms": 70_000}), [], id="a reading that was slow is no slow load"),
        pytest.param(
            facts(groups={"a\nb": GroupTally(1, 900)}), [("a\nb", "WARN")], id="commits a message"
        ),
    ],
)
def test_each_fault_is_found_where_it_is(topic: TopicFacts, expected: object) -> None:
    assert wrong(topic) == expected


def test_a_stopped_cleaner_is_told_with_numbers_and_what_to_do() -> None:
    (row,) = (row for row in judge_topic(facts(STOPPED)) if row["about"] == "partition")
    assert (row["dirty_ratio"], row["records_per_key"]) == (1.0, 12_000.0)
    assert row["why"].startswith(
        "nothing was cleaned since 2023-11-14T21:13:20Z: records 600000, keys 50, dirty ratio 1.00 "
        "where cleaning begins at 0.5; the cleaner of broker 1 has stopped"
    )


def test_several_findings_are_one_row_with_the_worst_first() -> None:
    (row,) = (
        row for row in judge_topic(facts({**STOPPED, "isr": (1,)})) if row["about"] == "partition"
    )
    assert row["verdict"] == "ERR"
    cleaning, replicas = row["why"].index("nothing was cleaned"), row["why"].index("1 of 3")
    assert cleaning < replicas


def test_the_groups_that_weigh_most_are_shown_the_busiest_first() -> None:
    groups = {f"g{number:02}": GroupTally(number, 30 - number) for number in range(1, 30)}
    rows = [row for row in judge_topic(facts(groups=groups)) if row["about"] == "group"]
    assert [row["subject"] for row in rows[:2]] == ["g01", "g02"]
    assert [row["subject"] for row in rows[10:12]] == ["g29", "g28"]
    assert (len(rows), rows[0]["commits_per_s"]) == (20, 0.5)


def test_the_summary_counts_and_names_the_worst() -> None:
    topic = facts({"isr": (1, 3)}, settings={**SETTINGS, "cleanup.policy": "delete"})
    worst, sentence = summarize(topic, judge_topic(topic))
    assert worst == "ERR"
    assert sentence.startswith(
        "__consumer_offsets: 1 partitions, 60.0 MiB, 50 keys: 1 ERR, 1 WARN; first cleanup.policy: "
    )
    assert summarize(facts(), judge_topic(facts())) == (
        "OK",
        "__consumer_offsets: 1 partitions, 60.0 MiB, 50 keys: all OK",
    )


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (3 * MIB, "3.0 MiB"), (5 << 40, "5120.0 GiB")]
)
def test_sizes_are_told_as_people_read_them(size: int, text: str) -> None:
    assert size_text(size) == text
