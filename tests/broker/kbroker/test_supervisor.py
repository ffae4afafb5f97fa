"""`kbroker start --processes`: several brokers of one file, as processes."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.kbroker.local_cluster import HOST, claim_ports
from broker.kbroker.supervisor import MAX_PAUSE_S, next_pause_s
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line, first_line, lives
from tests.stage.waiting import DEADLINE_S, block_until


def test_pauses_grow_up_to_a_limit_and_a_steady_broker_begins_anew() -> None:
    pauses = [0.5]
    for _ in range(8):
        pauses.append(next_pause_s(pauses[-1], lived_s=1))
    assert pauses[1:4] == [1, 2, 4]
    assert pauses[-1] == MAX_PAUSE_S
    assert next_pause_s(MAX_PAUSE_S, lived_s=3600) == 1


def three_ports() -> int:
    """Return a free port before two others that are free."""
    while True:
        (first,) = claim_ports(0, 1)
        sockets = []
        try:
            for port in (first + 1, first + 2):
                sockets.append(socket.create_server((HOST, port)))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return first


@pytest.fixture
def supervisor(dev_cluster: DevCluster, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Three brokers from one file, in a chroot of the ZooKeeper of a cluster."""
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=4\nlisteners=PLAINTEXT://{HOST}:{three_ports()}\nlog.dirs={tmp_path}/data\n"
        f"zookeeper.connect={dev_cluster.address('zookeeper')}/{tmp_path.name}\n"
        "offsets.topic.replication.factor=1\n"
    )
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command_line("kbroker", "start", str(file), "--processes", "3"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def pids_of(process: subprocess.Popen[str]) -> dict[int, int]:
    """Return the process id of each of its living brokers, by broker id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == process.pid and lives(int(entry.name)):
                # A child that was just forked has its parent's words still.
                ids = [word for word in words if word.startswith("broker.id=")]
                if ids:
                    found[int(ids[0].partition("=")[2])] = int(entry.name)
    return found


def test_brokers_of_one_file_serve_a_killed_one_comes_back_and_all_stop(
    supervisor: subprocess.Popen[str], dev_cluster: DevCluster, tmp_path: Path
) -> None:
    ready = first_line(supervisor)
    bootstrap = re.fullmatch(r"ready bootstrap=(\S+)\n", ready)
    assert bootstrap is not None, (tmp_path / "log").read_text()
    addresses = bootstrap[1].split(",")
    ports = [int(address.rpartition(":")[2]) for address in addresses]
    assert ports == list(range(ports[0], ports[0] + 3))

    zookeeper = f"{dev_cluster.address('zookeeper')}/{tmp_path.name}"

    def run(*args: str, stdin: str = "") -> str:
        # The environment names another cluster, in the same ZooKeeper.
        addresses = ("-b", bootstrap[1], "--zookeeper", zookeeper)
        result = dev_cluster.run(*args, *addresses, stdin=stdin)
        assert result.returncode == 0, result.stderr
        return result.stdout

    # All are brokers of one cluster, on one host.
    run("kbroker", "topics", "create", "t", "--partitions", "3", "--replication-factor", "1")
    run("kgroup", "produce", "--topic", "t", stdin="a\nb\nc\n")
    by_host = run("kbroker", "cluster", "describe", "--by-host", "-o", "csv").splitlines()
    assert by_host[0] == "host,brokers,rack,controller,leaders,preferred"
    assert [socket.gethostname() in line for line in by_host[1:]] == [True]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "broker_4",
        "broker_5",
        "broker_6",
    ]

    # One is killed, and serves again under the same id.
    pids = pids_of(supervisor)
    assert set(pids) == {4, 5, 6}
    os.kill(pids[5], signal.SIGKILL)
    block_until(
        lambda: pids_of(supervisor).get(5) not in (None, pids[5]), "broker 5 is started again"
    )

    def has_all_offsets() -> bool:
        listed = dev_cluster.run("kgroup", "offsets", "--topic", "t", "-b", addresses[1])
        return listed.returncode == 0

    block_until(has_all_offsets, "broker 5 serves again")
    assert (
        "broker 5 was killed by SIGKILL; it is started again in 1 s"
        in (tmp_path / "log").read_text()
    )

    supervisor.terminate()
    assert supervisor.wait(DEADLINE_S * 2) == 0
    assert not pids_of(supervisor)


def test_the_brokers_do_not_outlive_a_killed_supervisor(
    supervisor: subprocess.Popen[str],
) -> None:
    assert first_line(supervisor).startswith("ready ")
    pids = pids_of(supervisor)
    supervisor.kill()
    block_until(lambda: not any(map(lives, pids.values())), "the brokers end")


def test_a_broker_that_never_serves_ends_them_all(dev_cluster: DevCluster, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        file = tmp_path / "server.properties"
        file.write_text(
            f"broker.id=1\nlisteners=PLAINTEXT://{HOST}:{taken.getsockname()[1]}\n"
            f"log.dirs={tmp_path}/data\n"
            f"zookeeper.connect={dev_cluster.address('zookeeper')}/{tmp_path.name}\n"
        )
        result = subprocess.run(
            command_line("kbroker", "start", str(file), "--processes", "1"),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * 2,
        )
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "error: broker 1 exited with 1 before it served"


def test_the_directory_of_a_single_broker_is_refused_with_where_its_data_goes(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text("version=0\nbroker.id=1\n")
    file = tmp_path / "server.properties"
    file.write_text(f"broker.id=1\nzookeeper.connect=z:1\nlog.dirs={data}\n")
    result = subprocess.run(
        command_line("kbroker", "start", str(file), "--processes", "2"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert result.returncode == 1
    assert f"move what is in it to {data}/broker_1" in result.stderr


def test_a_broker_alone_does_not_take_its_siblings_directory_for_a_partition(
    dev_cluster: DevCluster, tmp_path: Path
) -> None:
    (tmp_path / "data" / "broker_1").mkdir(parents=True)
    file = tmp_path / "server.properties"
    file.write_text(
        f"broker.id=1\nlisteners=PLAINTEXT://{HOST}:0\nlog.dirs={tmp_path}/data\n"
        f"zookeeper.connect={dev_cluster.address('zookeeper')}/{tmp_path.name}\n"
    )
    result = subprocess.run(
        command_line("kbroker", "start", str(file)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
    )
    assert result.returncode == 1
    assert "'broker_1' is not named topic-partition" in result.stderr
    assert not list((tmp_path / "data" / "broker_1").iterdir())
