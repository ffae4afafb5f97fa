"""`kbroker topics` and `kbroker cluster` on a running cluster."""

import json

import pytest

from broker.kbroker.cluster import cluster_item, summary
from broker.kbroker.topics import only, topic_item, topic_lines
from clients.cluster_view import BrokerEndpoint, PartitionView
from clients.descriptions import ClusterDescription, TopicDescription
from tests.dev_cluster import DevCluster

FLIGHTS = TopicDescription(
    "flights",
    False,
    {0: PartitionView(0, 3, (0, 1), (0,)), 1: PartitionView(-1, 4, (1, 0), (1, 0))},
)


def test_a_described_topic_has_kafkas_lines() -> None:
    item = topic_item(FLIGHTS, {"segment.bytes": "100", "cleanup.policy": "compact"})
    assert list(topic_lines(item, summary=True)) == [
        "Topic: flights\tPartitionCount: 2\tReplicationFactor: 2"
        "\tConfigs: cleanup.policy=compact,segment.bytes=100",
        "\tTopic: flights\tPartition: 0\tLeader: 0\tReplicas: 0,1\tIsr: 0",
        "\tTopic: flights\tPartition: 1\tLeader: none\tReplicas: 1,0\tIsr: 1,0",
    ]


def test_a_filter_of_partitions_prints_their_lines_alone() -> None:
    item = only(topic_item(FLIGHTS, {}), lambda partition: partition["leader"] is None)
    assert [line.split("\t")[2] for line in topic_lines(item, summary=False)] == ["Partition: 1"]


def test_the_cluster_names_controller_epoch_and_partitions_in_trouble() -> None:
    cluster = ClusterDescription("c1", 0, (BrokerEndpoint(0, "h", 9092),))
    item = cluster_item(cluster, 7, topic_item(FLIGHTS, {})["partitions"])
    assert summary(item).splitlines() == [
        "Cluster: c1",
        "Controller: broker 0, epoch 7",
        "Under-replicated partitions: flights-0",
        "Offline partitions: flights-1",
    ]


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
