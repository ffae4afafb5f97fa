"""The metrics' text, and the dashboard that is made for it."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clients.groups.group_facts import LogOffsets
from clients.groups.recorded_groups import RecordedGroup, RecordedOffset
from clients.serve.metrics import COMPAT, Scrape, metrics_text
from clients.serve.snapshot import group_item, lag_over_time, partition_items
from protocol.topic_partition import TopicPartition
from tests.clients.watching.test_health import commits
from tests.stage.processes import ROOT

T0 = TopicPartition("t", 0)
BOARD = ROOT / "examples" / "grafana" / "kgroup-serve.json"


def scrape(*, by_partition: bool = True) -> Scrape:
    group = RecordedGroup({T0: RecordedOffset(4, -1, "", 1_000, None, 0)})
    logs = {T0: LogOffsets(1, 10)}
    partitions = partition_items("g", group, {}, logs, {(T0, 4): 500}, 3_000)
    item = group_item("g", group, partitions, [6])
    health = [{"group": "g", "topic": "t", "partition": 0, "verdict": "ERR", "status": "STOP"}]
    return Scrape(
        "c", True, None, 3_000, 0, [(item, partitions)], logs, {"g": 7}, health, by_partition
    )


def samples(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_figures_of_a_group_and_its_partition() -> None:
    shown = samples(metrics_text(scrape()))
    assert shown["kgroup_group_lag", ("g",)] == 6
    assert shown["kgroup_group_lag_seconds", ("g",)] == 2.5
    assert shown["kgroup_group_commits_total", ("g",)] == 7
    assert shown["kgroup_group_commit_timestamp_seconds", ("g",)] == 1
    assert shown["kgroup_group_status", ("g",)] == 3
    assert shown["kgroup_log_start_offset", ("0", "t")] == 1


def test_series_of_partitions_are_left_out_on_request() -> None:
    names = {name for name, _ in samples(metrics_text(scrape(by_partition=False)))}
    assert "kgroup_group_lag" in names
    assert not [name for name in names if name.startswith(("kgroup_partition", "kgroup_log"))]


@pytest.mark.parametrize(
    ("compat", "name", "labels", "value"),
    [
        ("lag-exporter", "kafka_consumergroup_group_sum_lag", ("c", "g"), 6),
        ("lag-exporter", "kafka_consumergroup_group_max_lag_seconds", ("c", "g"), 2.5),
        ("kminion", "kminion_kafka_consumer_group_topic_lag", ("g", "t"), 6),
        ("kminion", "kminion_kafka_topic_partition_high_water_mark", ("0", "t"), 10),
        ("burrow", "burrow_kafka_consumer_status", ("c", "g"), 3),
        ("burrow", "burrow_kafka_topic_partition_status", ("c", "g", "0", "t"), 3),
    ],
)
def test_other_exporters_names_come_besides_ours(
    compat: str, name: str, labels: tuple[str, ...], value: float
) -> None:
    shown = samples(metrics_text(scrape(), [compat]))
    assert shown[name, labels] == value
    assert shown["kgroup_group_lag", ("g",)] == 6


def test_board_asks_for_nothing_that_is_not_exported() -> None:
    exported = {name for name, _ in samples(metrics_text(scrape(), COMPAT))}
    asked = set(re.findall(r"kgroup_[a-z_]+", json.dumps(json.loads(BOARD.read_text()))))
    assert asked
    assert asked <= exported


def test_lag_over_time_follows_commits_and_ends() -> None:
    # Commits at 100 s, 200 s and 300 s.
    own = {T0: commits([10, 20, 30], [None] * 3)}
    ends = {T0: [(150_000, 25), (250_000, 40)]}
    assert lag_over_time(own, ends, [120_000, 160_000, 210_000, 260_000, 310_000]) == [
        None,
        15,
        5,
        20,
        10,
    ]
