"""`kbroker dev`, `start` and `zookeeper` run as processes."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from clients.admin import Admin, NewTopic
from clients.admin.acl_requests import describe_acls_request, described_acls
from clients.high_level.connector import ConsumerConnector
from clients.producer.producer import Producer
from kgroup.testing import run_cluster
from protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    ResourcePattern,
    ResourceType,
)
from protocol.settings import parse_properties
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line, first_line, lives
from tests.stage.waiting import DEADLINE_S, block_until, until_equal
from tests.stage.zookeeper import zookeeper_session
from zk.api import NoAuth


def test_a_cluster_says_it_is_ready_keeps_its_files_and_ends_with_zero_on_sigterm(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path) as cluster:
        host_port = r"127\.0\.0\.1:\d+"
        line = rf"ready bootstrap={host_port} zookeeper={host_port} data={tmp_path}\n"
        assert re.fullmatch(line, cluster.ready)
        pids = [cluster.pid("broker-0"), cluster.pid("zookeeper")]
        assert all(map(lives, pids))
        assert (tmp_path / "broker-0" / "meta.properties").exists()
        assert "ready bootstrap=" in (tmp_path / "broker-0.log").read_text()
    assert cluster.process.returncode == 0
    assert not any(map(lives, pids))
    assert not list(tmp_path.glob("*.pid"))


@pytest.mark.fault("outside-O15")
def test_a_broker_that_is_started_by_hand_is_the_one_that_its_file_names(tmp_path: Path) -> None:
    with DevCluster(tmp_path) as cluster:
        # Twice: the first one by hand leaves no file of a process that is gone.
        for _ in range(2):
            if (tmp_path / "broker-0.pid").exists():
                cluster.kill("broker-0")
            with cluster.started_again() as broker:
                assert cluster.pid("broker-0") == broker.pid
            assert not (tmp_path / "broker-0.pid").exists()


def test_a_broker_that_was_started_by_hand_keeps_its_file_and_is_named_where_it_is_in_the_way(
    tmp_path: Path,
) -> None:
    with contextlib.ExitStack() as by_hand:
        with DevCluster(tmp_path) as cluster:
            cluster.kill("broker-0")
            broker = by_hand.enter_context(cluster.started_again())
        assert not lives(cluster.process.pid)
        assert [file.name for file in tmp_path.glob("*.pid")] == ["broker-0.pid"]
        assert cluster.pid("broker-0") == broker.pid

        port = cluster.address("bootstrap").rpartition(":")[2]
        again = subprocess.run(
            command_line(
                *("kbroker", "dev", "--data", str(tmp_path), "--port", port),
                *("--zookeeper-port", "0"),
            ),
            cwd=ROOT,
            text=True,
            capture_output=True,
            timeout=DEADLINE_S,
        )
        assert again.returncode == 1
        assert f"127.0.0.1:{port}: Address already in use by process {broker.pid} (" in again.stderr
        # Its file is not taken away by who could not start either.
        assert cluster.pid("broker-0") == broker.pid
        # ZooKeeper is gone: its end in order would wait for it.
        broker.kill()


def test_the_same_directory_continues_with_its_topics_and_takes_new_settings(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path) as cluster:
        assert cluster.run("kbroker", "topics", "create", "kept").returncode == 0
        cluster.run("kgroup", "produce", "--topic", "kept", "--acks", "all", stdin="a\nb\n")
    with DevCluster(tmp_path, ("--set", "num.partitions=4")) as cluster:
        offsets = cluster.run("kgroup", "offsets", "--topic", "kept", "-o", "csv").stdout
        assert offsets.splitlines()[1:] == ["kept,0,2"]
        assert cluster.run("kbroker", "topics", "create", "new").returncode == 0
        described = cluster.run("kbroker", "topics", "describe", "new").stdout
        assert "PartitionCount: 4" in described


def test_a_second_cluster_on_the_same_directory_is_refused(dev_cluster: DevCluster) -> None:
    result = dev_cluster.run("kbroker", "dev", "--data", str(dev_cluster.directory))
    assert result.returncode == 1
    assert result.stderr == f"error: {dev_cluster.directory} is in use by another kbroker dev\n"


def test_a_killed_broker_is_named_the_other_lives_on_and_start_brings_it_back(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path, ("--brokers", "2")) as cluster:
        assert cluster.process.stderr is not None
        first, second = cluster.address("bootstrap").split(",")
        cluster.kill("broker-1")
        report = cluster.process.stderr.readline()
        properties = tmp_path / "broker-1.properties"
        assert report.startswith("broker 1 was killed by SIGKILL")
        assert report.endswith(f"kbroker start {properties}\n")
        assert lives(cluster.pid("broker-0"))
        block_until(
            lambda: cluster.run("kbroker", "cluster", "describe", "-b", first).returncode == 0,
            "the other answers",
        )

        restarted = cluster.begin("kbroker", "start", str(properties))
        try:
            assert first_line(restarted) == f"ready bootstrap={second}\n"
        finally:
            restarted.send_signal(signal.SIGTERM)
            restarted.communicate(timeout=DEADLINE_S)
        assert restarted.returncode == 0


def test_a_killed_zookeeper_is_named_and_comes_back_by_the_command_that_is_said(
    tmp_path: Path,
) -> None:
    with DevCluster(tmp_path) as cluster:
        assert cluster.run("kbroker", "topics", "create", "t").returncode == 0
        assert cluster.process.stderr is not None
        cluster.kill("zookeeper")
        report = cluster.process.stderr.readline().strip()
        killed, _, words = report.partition("; to start it again: kbroker ")
        assert killed == "ZooKeeper was killed by SIGKILL"

        restarted = cluster.begin("kbroker", *words.split())
        try:
            assert first_line(restarted) == f"ready zookeeper={cluster.address('zookeeper')}\n"
            shown = cluster.run("kgroup", "list", "--zookeeper", cluster.address("zookeeper"))
            assert (shown.returncode, shown.stderr) == (0, "")
        finally:
            # Brokers close their sessions in it.
            cluster.process.send_signal(signal.SIGTERM)
            cluster.process.wait(DEADLINE_S)
            restarted.send_signal(signal.SIGTERM)
            restarted.communicate(timeout=DEADLINE_S)


def test_no_child_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    with DevCluster(tmp_path) as cluster:
        pids = [cluster.pid("broker-0"), cluster.pid("zookeeper")]
        cluster.process.kill()
        block_until(lambda: not any(map(lives, pids)), "children gone")


def test_ctrl_c_while_starting_leaves_nothing_behind(tmp_path: Path) -> None:
    command = command_line("kbroker", "dev", "--port", "0", "--zookeeper-port", "0")
    process = subprocess.Popen(
        [*command, "--data", str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    started = tmp_path / "zookeeper" / "zookeeper.log"
    block_until(started.exists, "ZooKeeper is being started")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (0, "")
    assert not list(tmp_path.glob("*.pid"))


def test_a_setting_that_is_none_of_kafkas_keeps_the_cluster_from_starting(tmp_path: Path) -> None:
    command = command_line("kbroker", "dev", "--port", "0", "--zookeeper-port", "0")
    result = subprocess.run(
        [*command, "--data", str(tmp_path), "--set", "no.such.setting=1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert result.returncode == 1
    assert result.stderr.startswith("error: broker 0 exited with 1: error: no.such.setting")


def test_zookeeper_alone_ends_with_its_server_and_says_so(tmp_path: Path) -> None:
    pid_file = tmp_path / "zookeeper.pid"
    pid_file.write_text("1\n")
    process = subprocess.Popen(
        command_line("kbroker", "zookeeper", "--port", "0", "--data", str(tmp_path / "zookeeper")),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first_line(process).startswith("ready zookeeper=")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    _, error = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert re.match(
        r"error: ZooKeeper at 127\.0\.0\.1:\d+ ended with status -9; .*\.log ends:", error
    )


def test_zookeeper_alone_says_it_is_ready_and_ends_with_zero_on_sigint(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command_line("kbroker", "zookeeper", "--port", "0", "--data", str(tmp_path)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert re.fullmatch(r"ready zookeeper=127\.0\.0\.1:\d+\n", first_line(process))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_a_missing_properties_file_is_wrong_usage(dev_cluster: DevCluster) -> None:
    assert dev_cluster.run("kbroker", "start", "/no/such.properties").returncode == 2


@pytest.mark.fault("security-13")
def test_a_secured_cluster_shows_its_passwords_to_nobody_and_goes_on_after_a_restart(
    tmp_path: Path,
) -> None:
    secure = tmp_path / "secure"
    as_admin = ("--command-config", str(secure / "admin.properties"))
    as_alice = ("--command-config", str(secure / "alice.properties"))
    asyncio.run(secured_at_first(tmp_path))
    kept_from_others = [tmp_path / name for name in ("zookeeper", "broker-0", "broker-1")]
    for folder in kept_from_others:
        assert folder.stat().st_mode & 0o777 == 0o700
        # As a release before this one has made it.
        folder.chmod(0o755)

    # Without --secure its ZooKeeper would refuse the brokers.
    options = ("--port", "0", "--zookeeper-port", "0", "--data", str(tmp_path))
    refused = subprocess.run(
        command_line("kbroker", "dev", *options), cwd=ROOT, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "has a secured cluster: start it with --secure" in refused.stderr

    with DevCluster(tmp_path, ("--secure", "--brokers", "2")) as cluster:
        offsets = cluster.run("kgroup", "offsets", "--topic", "kept", "-o", "csv", *as_admin)
        assert offsets.stdout.splitlines()[1:] == ["kept,0,1"], offsets.stderr
        refused = cluster.run("kgroup", "offsets", "--topic", "kept", *as_alice)
        assert refused.returncode == 1
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        described = cluster.run(
            "kbroker", "configs", "describe", "--broker", "0", "--all", *as_admin
        )
        assert described.returncode == 0, described.stderr

        passwords = parse_properties((secure / "passwords.properties").read_text()).values()
        shown = [described.stdout, *(file.read_text() for file in tmp_path.glob("*.log"))]
        shown += map(command_line_of, Path("/proc").glob("[0-9]*"))
        shown += [(tmp_path / "zookeeper" / "zookeeper.log").read_text()]
        assert not any(password in text for password in passwords for text in shown)
        for file in tmp_path.glob("broker-*.properties"):
            assert file.stat().st_mode & 0o777 == 0o600
        for folder in kept_from_others:
            assert folder.stat().st_mode & 0o777 == 0o700
    assert cluster.process.returncode == 0


def command_line_of(process: Path) -> str:
    """Return the command line of a process, which may be gone."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return (process / "cmdline").read_text("latin-1")
    return ""


async def secured_at_first(directory: Path) -> None:
    """Two brokers replicate what alice writes and reads; nobody else writes to ZooKeeper."""
    with run_cluster(directory, brokers=2, secure=True) as cluster:
        async with Admin(cluster.client_settings()) as admin:
            settings = {"min.insync.replicas": "2"}
            created = await admin.create_topics([NewTopic("kept", 1, 2, settings)])
            assert created == {"kept": None}
            allowed = await admin.create_acls(
                AclBinding(ResourcePattern(kind, name), AclEntry("User:alice", operation))
                for kind, name, operation in (
                    (ResourceType.TOPIC, "kept", Operation.WRITE),
                    (ResourceType.TOPIC, "kept", Operation.READ),
                    (ResourceType.GROUP, "readers", Operation.READ),
                )
            )
            assert set(allowed.values()) == {None}
            # Brokers learn of them one after the other.
            await until_equal(partial(acl_counts, admin), [len(allowed)] * 2)

            alice = cluster.client_settings("alice")
            async with Producer(alice | {"acks": "all"}) as producer:
                await producer.send_and_wait("kept", b"v")
            member = {"group.id": "readers", "membership": "coordinator"}
            member["auto.offset.reset"] = "smallest"
            async with ConsumerConnector(alice | member) as connector:
                (stream,) = (await connector.create_message_streams({"kept": 1}))["kept"]
                assert (await anext(stream)).value == b"v"
            await admin.delete_acls([AclFilter()])

        async with zookeeper_session(cluster.zookeeper) as stranger:
            with pytest.raises(NoAuth):
                await stranger.create("/brokers/topics/mine", b"{}")
            with pytest.raises(NoAuth):
                await stranger.get("/config/users/admin")
    told = (directory / "kbroker-dev.err").read_text()
    assert str(directory / "secure" / "alice.properties") in told


async def acl_counts(admin: Admin) -> list[int]:
    """Return how many ACLs each broker knows."""
    request = describe_acls_request(AclFilter())
    await admin.cluster.refresh(())
    connections = [await admin.cluster.connection(number) for number in admin.cluster.brokers]
    return [len(described_acls(await connection.call(request))) for connection in connections]
