"""`run_cluster`: a real cluster for the tests of others, as docs/testing.md has it."""

from pathlib import Path

import pytest

from clients.blocking import Admin, Producer
from kgroup.testing import run_cluster
from zk.embedded import ZkServerError, find_jars, find_java


@pytest.fixture(autouse=True)
def zookeeper_can_run() -> None:
    try:
        find_java(), find_jars()
    except ZkServerError as error:
        pytest.skip(f"missing tool: {error}")


@pytest.mark.fault("users-8")
def test_topics_have_replicas_enough_for_several_brokers(tmp_path: Path) -> None:
    settings = {"min.insync.replicas": "2"}
    with run_cluster(tmp_path, brokers=2, settings=settings) as cluster:
        topic = cluster.create_topic("orders")
        with Admin(cluster.client_settings()) as admin:
            (partition,) = admin.describe_topics([topic])[topic].partitions.values()
            alone = cluster.create_topic("alone", replication_factor=1)
            (unreplicated,) = admin.describe_topics([alone])[alone].partitions.values()
        assert set(partition.replicas) == {0, 1}
        assert len(unreplicated.replicas) == 1
        with Producer(cluster.client_settings() | {"acks": "all"}) as producer:
            assert producer.send_and_wait(topic, b"one").offset == 0


@pytest.mark.fault("strangers-105")
def test_each_broker_knows_a_topic_that_was_created(tmp_path: Path) -> None:
    """Whichever a client asks first: else it would say at times that there is no such topic."""
    with run_cluster(tmp_path, brokers=2) as cluster:
        for _ in range(20):
            topic = cluster.create_topic("orders")
            for address in cluster.bootstrap.split(","):
                with Admin(cluster.client_settings() | {"bootstrap.servers": address}) as admin:
                    assert topic in admin.describe_topics([topic])


def test_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "cluster"
    wrong = {"num.io.threads": "none"}
    with (
        pytest.raises(RuntimeError, match="kbroker dev does not start"),
        run_cluster(directory, settings=wrong, secure=True),
    ):
        pass
    assert directory.is_dir()
