"""`kbroker topics` and `kbroker cluster` on a running cluster."""

import json
from typing import Any

import pytest

from broker.kbroker.cluster import build_cluster_item, find_refusing_log_dirs, format_summary
from broker.kbroker.topic_choice import match_topics
from broker.kbroker.topic_rows import (
    build_topic_item,
    filter_partitions,
    format_partition_lines,
    format_topic_line,
    is_at_min_isr,
    is_under_min_isr,
    unread_settings,
)
from clients.admin.descriptions import ClusterDescription, LogDirDescription, TopicDescription
from clients.cluster_view import BrokerEndpoint, PartitionView
from clients.command_line.output import Failure
from clients.errors import BrokerError, ConnectionFailed, KgroupError, UnsupportedApi
from protocol.errors import ApiError, ErrorCode
from tests.stage.cluster import DevCluster

FLIGHTS = TopicDescription(
    "flights",
    False,
    {0: PartitionView(0, 3, (0, 1), (0,)), 1: PartitionView(-1, 4, (1, 0), (1, 0))},
)


def test_a_described_topic_has_kafkas_lines() -> None:
    item = build_topic_item(FLIGHTS, {"segment.bytes": "100", "cleanup.policy": "compact"})
    assert [format_topic_line(item), *format_partition_lines(item)] == [
        "Topic: flights\tPartitionCount: 2\tReplicationFactor: 2"
        "\tConfigs: cleanup.policy=compact,segment.bytes=100",
        "\tTopic: flights\tPartition: 0\tLeader: 0\tReplicas: 0,1\tIsr: 0",
        "\tTopic: flights\tPartition: 1\tLeader: none\tReplicas: 1,0\tIsr: 1,0",
    ]


def test_a_filter_of_partitions_prints_their_lines_alone() -> None:
    item = filter_partitions(
        build_topic_item(FLIGHTS, {}), lambda partition: partition["leader"] is None
    )
    assert [line.split("\t")[2] for line in format_partition_lines(item)] == ["Partition: 1"]


def test_a_topic_that_is_about_to_go_says_so() -> None:
    item = build_topic_item(FLIGHTS, {}, marked=True)
    assert format_topic_line(item).endswith("\tConfigs: \tMarkedForDeletion: true")


@pytest.mark.parametrize(
    ("min_isr", "under", "at"), [(1, [1], [0]), (2, [0, 1], []), (3, [0, 1], [])]
)
def test_partitions_are_told_apart_by_how_many_must_be_in_sync(
    min_isr: int, under: list[int], at: list[int]
) -> None:
    partitions = build_topic_item(FLIGHTS, {}, min_isr=min_isr)["partitions"]
    assert [p["partition"] for p in partitions if is_under_min_isr(p)] == under
    assert [p["partition"] for p in partitions if is_at_min_isr(p)] == at


def test_partition_whose_setting_may_not_be_read_is_told_of_only_without_a_leader() -> None:
    led, leaderless = build_topic_item(FLIGHTS, None)["partitions"]
    assert [is_under_min_isr(led), is_at_min_isr(led)] == [False, False]
    assert [is_under_min_isr(leaderless), is_at_min_isr(leaderless)] == [True, False]


def test_settings_of_many_topics_that_may_not_be_read_are_one_failure() -> None:
    refused = BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "t-0")
    away = ConnectionFailed("h", 1, "down")
    errors: dict[str, KgroupError] = {f"t-{number}": refused for number in range(12)}
    named = [failure.what for failure in unread_settings(errors | {"a": away})]
    first = ", ".join(f"t-{number}" for number in range(10))
    assert named == [f"settings of {first} and 2 more", "settings of a"]


def test_a_pattern_means_the_topic_called_exactly_so_before_all_it_matches() -> None:
    existing = dict.fromkeys(("a.b", "axb", "c"), 0)
    assert list(match_topics((), "a.b", existing)) == ["a.b"]
    assert list(match_topics((), "a..?", existing)) == ["a.b", "axb"]
    assert list(match_topics(("c",), None, existing)) == ["c"]
    with pytest.raises(ApiError, match="no topic matches d"):
        match_topics((), "d", existing)
    with pytest.raises(ApiError, match="there is no topic d"):
        match_topics(("c", "d"), None, existing)


def test_the_cluster_names_controller_epoch_and_partitions_in_trouble() -> None:
    cluster = ClusterDescription("c1", 0, (BrokerEndpoint(0, "h", 9092),))
    item = build_cluster_item(cluster, 7, build_topic_item(FLIGHTS, {}, min_isr=2)["partitions"])
    assert format_summary(item).splitlines() == [
        "Cluster: c1",
        "Controller: broker 0, epoch 7",
        "Under-replicated partitions: flights-0, flights-1",
        "Under-min-ISR partitions: flights-0, flights-1",
        "Offline partitions: flights-1",
        "Not led by the preferred leader: none",
        "Log directories that refuse writes: not known",
    ]
    item |= {
        "not_preferred": [f"t-{number}" for number in range(150)],
        "refusing_log_dirs": ["broker 0: /d (full)"],
    }
    assert format_summary(item).splitlines()[-2:] == [
        f"Not led by the preferred leader: {', '.join(f't-{n}' for n in range(10))} and 140 more",
        "Log directories that refuse writes: broker 0: /d (full)",
    ]


async def test_directories_that_refuse_writes_are_named_with_their_brokers() -> None:
    class Brokers:
        told: Any = (
            {"/a": LogDirDescription(ErrorCode.NONE, {}, is_full=True)},
            {
                "/b": LogDirDescription(ErrorCode.KAFKA_STORAGE_ERROR, {}),
                "/c": LogDirDescription(ErrorCode.NONE, {}),
            },
        )

        async def describe_log_dirs(self, broker: int, *, with_replicas: bool) -> Any:
            assert not with_replicas
            if isinstance(self.told[broker], Exception):
                raise self.told[broker]
            return self.told[broker]

    brokers: Any = Brokers()
    failures: list[Failure] = []
    assert await find_refusing_log_dirs(brokers, [0, 1], failures) == [
        "broker 0: /a (full)",
        "broker 1: /b (off-line)",
    ]
    # One that does not tell, or tells none to who may not know, may have some.
    well = {"/c": LogDirDescription(ErrorCode.NONE, {})}
    for silent in (ConnectionFailed("h", 1, "down"), UnsupportedApi("too old"), {}):
        brokers.told = (well, silent)
        assert await find_refusing_log_dirs(brokers, [0, 1], failures) is None
        brokers.told = (silent, Brokers.told[0])
        assert await find_refusing_log_dirs(brokers, [0, 1], []) == ["broker 1: /a (full)"]
    # Only one that should tell is named.
    assert [(failure.what, failure.message) for failure in failures] == [("broker 1", "h:1: down")]


def test_a_broker_is_imbalanced_by_what_it_should_lead_and_does_not() -> None:
    # Broker 0 leads two of its partitions, broker 1 leads one, and the last has no leader.
    view = {n: PartitionView(leader, 0, (0, 1), (0, 1)) for n, leader in enumerate((0, 1, 0, -1))}
    brokers = (BrokerEndpoint(0, "h", 1), BrokerEndpoint(1, "h", 2))
    partitions = build_topic_item(TopicDescription("t", False, view), {})["partitions"]
    item = build_cluster_item(
        ClusterDescription("c", 0, brokers), None, partitions, {0: ["A://h:1"]}
    )
    rows = [(b["leaders"], b["preferred"], b["imbalance"], b["listeners"]) for b in item["brokers"]]
    assert rows == [(2, 4, 0.25, ["A://h:1"]), (1, 0, None, None)]
    assert item["not_preferred"] == ["t-1"]


def test_a_topic_is_created_listed_described_and_deleted(dev_cluster: DevCluster) -> None:
    run = dev_cluster.run
    created = run(
        "kbroker", "topics", "create", "life", "--partitions", "2", "--config", "retention.ms=5"
    )
    assert (created.returncode, created.stdout) == (0, "Created topic life.\n")
    assert "life" in run("kbroker", "topics", "list").stdout.splitlines()
    described = json.loads(run("kbroker", "topics", "describe", "life", "-o", "json").stdout)
    assert (described["kind"], described["version"], described["errors"]) == ("topics", 1, [])
    (item,) = described["items"]
    assert item["configs"] == {"retention.ms": "5"}
    assert [p["leader"] for p in item["partitions"]] == [0, 0]
    deleted = run("kbroker", "topics", "delete", "life")
    assert (deleted.returncode, deleted.stdout) == (0, "Deleted topic life.\n")
    assert "life" not in run("kbroker", "topics", "list").stdout.splitlines()


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (("create", "wide", "--replication-factor", "2"), "wide: INVALID_REPLICATION_FACTOR: "),
        (("create", "no/slash"), "no/slash: INVALID_TOPIC_EXCEPTION: "),
        (("create", "c", "--config", "no.such=1"), "c: INVALID_CONFIG: "),
        (("delete", "missing"), "missing: UNKNOWN_TOPIC_OR_PARTITION: "),
        (("describe", "missing"), "UNKNOWN_TOPIC_OR_PARTITION: "),
    ],
)
def test_what_the_broker_refuses_is_said_in_one_line(
    dev_cluster: DevCluster, args: tuple[str, ...], error: str
) -> None:
    result = dev_cluster.run("kbroker", "topics", *args)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {error}")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("create", "say which topic"),
        ("create a --topic b", "say which topic"),
        ("alter a", "say what to alter"),
        ("alter a --config b=c --replica-assignment 0", "needs --partitions"),
        ("delete", "say which topics"),
        ("describe --at-min-isr --zookeeper z:1", "no session"),
        ("delete --topic a[", "'a['"),
        ("--create a --zookeeper no@host", "ZooKeeper's address"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(
    dev_cluster: DevCluster, line: str, message: str
) -> None:
    result = dev_cluster.run("kbroker", "topics", *line.split())
    assert result.returncode == (1 if message == "no session" else 2)
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_topic_that_is_there_or_is_not_may_be_no_failure(dev_cluster: DevCluster) -> None:
    run = dev_cluster.run
    for _ in range(2):
        assert run("kbroker", "topics", "create", "again", "--if-not-exists").returncode == 0
    assert run("kbroker", "topics", "delete", "again", "--if-exists").returncode == 0
    for verb in ("delete", "describe"):
        result = run("kbroker", "topics", verb, "never", "--if-exists")
        assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_of_two_topics_the_one_that_can_be_deleted_is(dev_cluster: DevCluster) -> None:
    dev_cluster.run("kbroker", "topics", "create", "half")
    result = dev_cluster.run("kbroker", "topics", "delete", "half", "missing")
    assert (result.returncode, result.stdout) == (1, "Deleted topic half.\n")


def test_an_assignment_says_which_broker_leads(dev_cluster: DevCluster) -> None:
    run = dev_cluster.run
    created = run("kbroker", "topics", "create", "placed", "--replica-assignment", "0,0,0")
    assert created.returncode == 0
    assert "PartitionCount: 3" in run("kbroker", "topics", "describe", "placed").stdout


@pytest.mark.parametrize("assignment", ["a", "0,", "0:x"])
def test_an_assignment_that_is_no_broker_ids_is_wrong_usage(
    dev_cluster: DevCluster, assignment: str
) -> None:
    result = dev_cluster.run("kbroker", "topics", "create", "t", "--replica-assignment", assignment)
    assert result.returncode == 2


def test_the_cluster_is_described_with_the_epoch_zookeeper_tells(dev_cluster: DevCluster) -> None:
    result = dev_cluster.run("kbroker", "cluster", "describe", "-o", "json")
    (item,) = json.loads(result.stdout)["items"]
    assert item["controller"] == 0
    assert item["controller_epoch"] >= 1
    assert [broker["broker"] for broker in item["brokers"]] == [0]
    assert item["offline"] == []
