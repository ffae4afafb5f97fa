"""The metrics' text, and the dashboard that is made for it."""

import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from clients.groups.group_facts import LogOffsets
from clients.groups.recorded_groups import RecordedGroup, RecordedOffset
from clients.serve.metrics import COMPAT, Scrape, metrics_text
from clients.serve.snapshot import group_item, lag_over_time, partition_items
from clients.watching.commit_history import Commit, consumed_by
from offsets.records import GroupMember, GroupMetadata
from protocol.consumer_protocol import (
    Assignment,
    Subscription,
    encode_assignment,
    encode_subscription,
)
from protocol.topic_partition import TopicPartition
from tests.clients.watching.test_health import commits
from tests.stage.processes import ROOT

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
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


def test_lag_over_time_ends_with_a_deletion_and_begins_anew() -> None:
    own = {T0: [*commits([10, 20], [None] * 2), Commit(250_000, "g", "t", 0, None)]}
    own[T0].append(Commit(350_000, "g", "t", 0, 3))
    ends = {T0: [(150_000, 25), (300_000, 4)]}
    assert lag_over_time(own, ends, [210_000, 260_000, 360_000]) == [5, None, 1]


@pytest.mark.fault("strangers-50")
@pytest.mark.parametrize(
    ("unread_since_ms", "time_lag_ms"), [({}, None), ({(T1, 4): 500}, 2_500), ({(T2, 4): 0}, 3_000)]
)
def test_a_partition_without_lag_says_nothing_of_those_with_lag(
    unread_since_ms: dict[tuple[TopicPartition, int], int], time_lag_ms: int | None
) -> None:
    offset = RecordedOffset(4, -1, "", 1_000, None, 0)
    group = RecordedGroup(dict.fromkeys((T0, T1, T2), offset))
    logs = {T0: LogOffsets(1, 4), T1: LogOffsets(1, 10), T2: LogOffsets(1, 10)}
    partitions = partition_items("g", group, {}, logs, unread_since_ms, 3_000)
    assert partitions[0]["time_lag_ms"] == 0
    assert group_item("g", group, partitions, [])["time_lag_ms"] == time_lag_ms


@pytest.mark.fault("tool-F7")
def test_the_lag_of_a_topic_that_members_have_dropped_is_shown_and_not_summed() -> None:
    group = RecordedGroup({T0: RecordedOffset(4, -1, "", 1_000, None, 0)})
    logs = {T0: LogOffsets(1, 10)}

    def lags(subscribed: frozenset[str] | None) -> dict[str, float]:
        partitions = partition_items("g", group, {}, logs, {(T0, 4): 500}, 3_000, subscribed)
        item = group_item("g", group, partitions, [])
        text = metrics_text(
            Scrape("c", True, None, 3_000, 0, [(item, partitions)], logs, {}), ["lag-exporter"]
        )
        names = "kgroup_group_lag", "kgroup_partition_lag", "kafka_consumergroup_group_sum_lag"
        assert (item["time_lag_ms"] is None) == (subscribed is not None)
        return {name: value for (name, _), value in samples(text).items() if name in names}

    summed = ("kgroup_group_lag", "kafka_consumergroup_group_sum_lag")
    assert lags(frozenset({"other"})) == dict.fromkeys(summed, 0) | {"kgroup_partition_lag": 6}
    assert lags(None) == dict.fromkeys((*summed, "kgroup_partition_lag"), 6)


def test_topics_of_members_are_known_if_all_of_them_can_be_read() -> None:
    def metadata(*subscriptions: bytes, protocol_type: str = "consumer") -> GroupMetadata:
        members = [
            GroupMember(
                member_id=f"m{number}",
                client_id="c",
                client_host="/h",
                session_timeout_ms=1,
                subscription=subscription,
                assignment=encode_assignment(Assignment((T0,))),
            )
            for number, subscription in enumerate(subscriptions)
        ]
        return GroupMetadata(
            protocol_type=protocol_type,
            generation_id=1,
            protocol="range",
            leader="m0",
            members=members,
        )

    u, v = (encode_subscription(Subscription((topic,))) for topic in ("u", "v"))
    # What a member owns is consumed too.
    assert consumed_by(metadata(u, v)) == ({"u", "v", "t"}, {"t": {0}}, {T0})
    for unknown in (
        None,
        metadata(),
        metadata(u, b"?"),
        metadata(u, protocol_type="connect"),
    ):
        assert consumed_by(unknown) is None
