"""What a user reads when an address is wrong: one line that says what to do."""

import socket

from tests.stage.cluster import DevCluster


def complaint(cluster: DevCluster, address: str) -> str:
    """Return the line of a command that was given this address for brokers."""
    ran = cluster.run("kgroup", "offsets", "--topic", "t", "-b", address, "--timeout", "1000")
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1
    return ran.stderr


def test_nobody_listening_is_said(dev_cluster: DevCluster) -> None:
    said = complaint(dev_cluster, "127.0.0.1:1")
    assert "127.0.0.1:1" in said
    assert "nobody listens there" in said


def test_zookeepers_port_is_recognized_by_its_silence(dev_cluster: DevCluster) -> None:
    assert "is it ZooKeeper's port (--zookeeper)" in complaint(
        dev_cluster, dev_cluster.address("zookeeper")
    )


def test_a_port_that_says_nothing_may_not_be_kafkas(dev_cluster: DevCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "the port is not Kafka's" in complaint(dev_cluster, f"127.0.0.1:{port}")
