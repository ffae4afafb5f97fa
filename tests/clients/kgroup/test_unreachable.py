"""What a user reads when an address is wrong: one line that says what to do."""

import os
import signal
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from clients.kgroup.command import main as kgroup
from tests.clients.kgroup.reset_stage import ResetStage, filled_dev
from tests.interop.kafka_cluster import unique
from tests.stage.cluster import DevCluster
from zk.znodes import ConsumerOffset


def complaint(cluster: DevCluster, address: str, *command: str) -> str:
    """Return the line of a command, `offsets` unless told, that has this address for brokers."""
    words = (*(command or ("offsets",)), "--topic", "t", "-b", address, "--timeout", "1000")
    ran = cluster.run("kgroup", *words, stdin="a message\n")
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1
    return ran.stderr


def test_nobody_listening_is_said(dev_cluster: DevCluster) -> None:
    said = complaint(dev_cluster, "127.0.0.1:1")
    assert "127.0.0.1:1" in said
    assert "nobody listens there" in said


@pytest.mark.fault("broker-8")
def test_an_address_with_a_protocol_is_taken(dev_cluster: DevCluster) -> None:
    address = f"PLAINTEXT://{dev_cluster.address('bootstrap')}"
    ran = dev_cluster.run("kgroup", "list", "-b", address)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.fault("strangers-55")
def test_who_accepts_and_answers_no_handshake_is_waited_for_no_longer_than_was_said(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("security.protocol=SSL\n")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = complaint(dev_cluster, address, "offsets", "--command-config", str(settings))
    assert f"{address}: not connected within 1000 ms" in said


@pytest.mark.parametrize(
    "command",
    [
        ("produce",),
        ("consume", "--membership", "coordinator"),
        ("perf", "produce", "--num-records", "1", "--record-size", "1"),
        ("perf", "consume", "--messages", "1"),
    ],
    ids=" ".join,
)
def test_command_with_a_client_of_its_own_does_not_wait_on(
    dev_cluster: DevCluster, command: tuple[str, ...]
) -> None:
    said = complaint(dev_cluster, "127.0.0.1:1", *command)
    assert "127.0.0.1:1: connection refused" in said
    assert "name another one with --bootstrap-server" in said


@pytest.mark.parametrize(
    "words",
    [
        "kgroup list",
        "kgroup describe g",
        "kgroup describe g --as-of 2026-01-01T00:00:00Z",
        "kgroup health",
        "kgroup at-risk",
        "kgroup doctor",
        "kgroup events g",
        "kgroup history g",
        "kgroup offsets --topic t",
        "kgroup simulate g",
        "kgroup export g",
        "kgroup top --once",
        "kbroker topics list",
        "kbroker topics describe",
        "kbroker cluster describe",
        "kbroker configs describe --topic t",
        "kbroker configs describe --broker 0",
        "kbroker quotas describe",
        "kbroker users list",
        "kbroker acls list",
        "kbroker reassign list",
        "kbroker log describe",
        "kbroker log dirs",
        "kbroker transactions list",
        "kbroker transactions describe t",
        "kbroker transactions find-hanging --topic t",
    ],
)
def test_command_that_looks_says_at_once_that_nobody_listens_at_any_address(
    dev_cluster: DevCluster, words: str
) -> None:
    # One that tried again until its time is over would not end within the test's.
    ran = dev_cluster.run(
        *words.split(), "-b", "127.0.0.1:1,127.0.0.1:2", "--timeout", "3600000", "--zookeeper", ""
    )
    assert ran.returncode != 0
    said = ran.stdout + ran.stderr
    assert "127.0.0.1:1: connection refused: nobody listens there" in said
    assert "Traceback" not in said


def test_wrong_name_of_a_host_is_said_once(dev_cluster: DevCluster) -> None:
    said = complaint(dev_cluster, "no-such-host.invalid:9092")
    assert said.count("no-such-host.invalid") == 1


def test_zookeepers_port_is_recognized_by_its_silence(dev_cluster: DevCluster) -> None:
    assert "is it ZooKeeper's port (--zookeeper)" in complaint(
        dev_cluster, dev_cluster.address("zookeeper")
    )


def test_a_port_that_says_nothing_may_not_be_kafkas(dev_cluster: DevCluster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        assert "the port is not Kafka's" in complaint(dev_cluster, f"127.0.0.1:{port}")


@pytest.fixture(scope="module")
def stage(dev_cluster: DevCluster) -> ResetStage:
    return filled_dev(dev_cluster)


@pytest.mark.parametrize(
    "words",
    [
        "kbroker topics list",
        "kbroker configs describe --broker 0",
        "kbroker quotas describe",
        "kbroker transactions list",
        "kbroker log dirs",
        "kgroup journal",
        "kgroup doctor",
    ],
)
def test_command_that_asks_brokers_alone_does_so_while_zookeeper_is_away(
    dev_cluster: DevCluster, words: str
) -> None:
    away = ("-b", dev_cluster.address("bootstrap"), "--zookeeper", "127.0.0.1:1")
    ran = dev_cluster.run(*words.split(), *away, "--timeout", "2000")
    assert "ZooKeeper" not in ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_cluster_is_described_while_zookeeper_is_away(dev_cluster: DevCluster) -> None:
    away = ("--zookeeper", "127.0.0.1:1", "--timeout", "2000")
    ran = dev_cluster.run("kbroker", "cluster", "describe", *away)
    assert ran.returncode == 1
    assert "\nBROKER " in ran.stdout
    assert (
        ran.stderr == "error: ZooKeeper: no session with ZooKeeper at 127.0.0.1:1 within 2000 ms: "
        "connection refused: nobody listens there\n"
    )


@pytest.mark.fault("users-20")
def test_the_port_of_a_broker_is_named_where_zookeeper_is_looked_for(
    dev_cluster: DevCluster,
) -> None:
    broker = dev_cluster.address("bootstrap")
    ran = dev_cluster.run("kgroup", "export", "g", "--zkconnect", broker, "--timeout", "2000")
    assert (ran.returncode, "is it a broker's port (--bootstrap-server)" in ran.stderr) == (1, True)


@pytest.mark.fault("users-19")
def test_at_risk_calms_nobody_where_no_group_could_be_read() -> None:
    ran = CliRunner().invoke(kgroup, ["at-risk", "-b", "127.0.0.1:1", "--timeout", "500"])
    assert ran.exit_code == 1
    assert ran.stdout.strip() == "what is lost is not known: no group could be read"


def test_cluster_is_described_while_zookeeper_hangs(dev_cluster: DevCluster) -> None:
    created = dev_cluster.run("kbroker", "topics", "create", unique("t"))
    assert created.returncode == 0, created.stderr
    zookeeper = dev_cluster.pid("zookeeper")
    os.kill(zookeeper, signal.SIGSTOP)
    try:
        ran = dev_cluster.run("kbroker", "cluster", "describe", "--timeout", "1000")
    finally:
        os.kill(zookeeper, signal.SIGCONT)
    assert ran.returncode == 1
    assert "\nBROKER " in ran.stdout
    assert f"error: ZooKeeper: no session with ZooKeeper at {dev_cluster.address('zookeeper')}" in (
        ran.stderr
    )


@pytest.mark.parametrize(
    "words", [("list",), ("describe", "--all-groups"), ("top", "--once")], ids=" ".join
)
def test_groups_at_brokers_are_shown_while_zookeeper_is_away(
    stage: ResetStage, words: tuple[str, ...]
) -> None:
    group = stage.group({stage.t0: 3})
    ran = stage.run(*words, "--zookeeper", "127.0.0.1:1", "--timeout", "1000")
    assert ran.exit_code == 1
    assert group in ran.stdout
    assert "error: ZooKeeper: no session with ZooKeeper at 127.0.0.1:1" in ran.stderr


def test_health_cannot_be_told_while_zookeeper_is_away_and_shows_what_it_can(
    stage: ResetStage,
) -> None:
    group = stage.group({stage.t0: 10})
    ran = stage.run("health", group, "--zookeeper", "127.0.0.1:1", "--timeout", "1000")
    assert ran.exit_code == 3
    assert group in ran.stdout
    assert "error: ZooKeeper: no session with ZooKeeper at 127.0.0.1:1" in ran.stderr


def test_at_risk_is_told_of_groups_at_brokers_while_zookeeper_is_away(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 3})
    away = ("--zookeeper", "127.0.0.1:1", "--timeout", "1000")
    ran = stage.run("at-risk", group, "--within", "8d", *away)
    assert ran.exit_code == 1
    assert "offset-expires" in ran.stdout
    assert "as far as it can be told" in ran.stdout
    assert "error: ZooKeeper: no session with ZooKeeper at 127.0.0.1:1" in ran.stderr


def test_doctor_asks_brokers_alone_where_they_are_known(stage: ResetStage) -> None:
    stage.group({stage.t0: 3})
    ran = stage.run("doctor", "--zookeeper", "127.0.0.1:1", "--timeout", "1000")
    assert "__consumer_offsets" in ran.stdout
    assert "ZooKeeper" not in ran.stderr


def test_a_group_is_not_said_to_be_unknown_while_zookeeper_is_away(stage: ResetStage) -> None:
    ran = stage.run("describe", "nobody", "--zookeeper", "127.0.0.1:1", "--timeout", "1000")
    assert ran.exit_code == 1
    assert "does not exist" not in ran.output


def test_nothing_is_reset_while_one_of_the_stores_is_away(stage: ResetStage) -> None:
    group = stage.group({stage.t0: 3})
    where = ("--topic", stage.topic, "--to-earliest", "--execute")
    away = ("--zookeeper", "127.0.0.1:1", "--timeout", "1000")
    assert stage.run("reset", group, *where, *away).exit_code == 1
    assert stage.offsets(group) == {0: 3}


@pytest.mark.parametrize(
    "words", [("list",), ("describe", "--all-groups"), ("top", "--once")], ids=" ".join
)
def test_groups_in_zookeeper_are_shown_while_brokers_are_away(
    stage: ResetStage, words: tuple[str, ...]
) -> None:
    group = unique("at-home")
    stage.write({ConsumerOffset.path(group, *stage.t0): b"7"})
    ran = stage.run(*words, "-b", "127.0.0.1:1", "--timeout", "1000")
    assert ran.exit_code == 1
    assert group in ran.stdout
    assert "127.0.0.1:1: connection refused" in ran.stderr
