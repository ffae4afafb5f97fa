"""Brokers, their workers and the fixture run in a folder whose files are named as Python's are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clients.admin import NewTopic
from clients.blocking import Admin, Producer
from tests.stage.processes import first_line
from tests.stage.waiting import DEADLINE_S, block_until
from zk.embedded import ZkServerError, find_jars, find_java

pytestmark = pytest.mark.fault("users-3")

NAMES = ("random", "queue", "types", "socket", "selectors", "pickle", "attr", "clients", "kgroup")
KBROKER = "from broker.kbroker.program import main; main()"
QUICKLY = ("--set", "log.cleaner.backoff.ms=100")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules of somebody's own, which nobody may run."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name}.py was run')\n")
    return folder


@pytest.fixture
def jars() -> None:
    """What a ZooKeeper needs."""
    try:
        find_java(), find_jars()
    except ZkServerError as error:
        pytest.skip(f"missing tool: {error}")


@pytest.fixture
def dev(folder: Path, jars: None) -> Iterator[subprocess.Popen[str]]:
    """`kbroker dev`, as the installed program begins, in that folder."""
    with subprocess.Popen(
        [
            *(sys.executable, "-P", "-c", KBROKER, "dev", "--data", "data"),
            *("--port", "0", "--zookeeper-port", "0", *QUICKLY),
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_broker_starts_and_its_cleaner_cleans_beside_modules_of_pythons_names(
    folder: Path, dev: subprocess.Popen[str]
) -> None:
    ready = first_line(dev)
    log = folder / "data" / "broker-0.log"
    assert ready.startswith("ready "), log.read_text()
    bootstrap = dict(word.split("=", 1) for word in ready.split()[1:])["bootstrap"]

    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    with Admin(bootstrap) as admin, Producer(bootstrap_servers=bootstrap) as producer:
        assert admin.create_topics([NewTopic("t", 1, 1, configs)]) == {"t": None}
        for _ in range(10):
            producer.send_many("t", [bytes(100)] * 100, [b"k"] * 100).result(DEADLINE_S)

    block_until(lambda: "t-0: cleaned from" in log.read_text(), "the first pass")


RECOVERING = """
import sys
from contextlib import suppress
from pathlib import Path
from broker.kbroker.program import main

if __name__ == "__main__":
    sys.argv = ["kbroker", "--version"]
    with suppress(SystemExit):
        main()

    from core_log.config import LogConfig
    from core_log.recovery.recovery_pool import RecoveryJob, RecoveryPool
    from protocol.topic_partition import TopicPartition

    Path("t-0").mkdir()
    pool = RecoveryPool(1)
    result = pool.begin(RecoveryJob("t-0", TopicPartition("t", 0), LogConfig(), 0, 0))()
    pool.close()
    print(result)
"""


def test_logs_are_recovered_beside_modules_of_pythons_names(folder: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(RECOVERING)
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert "RecoveryDone(end_offset=0" in done.stdout, done.stderr


USER_TEST = """
from kgroup.testing import run_cluster

def test_topic(tmp_path):
    with run_cluster(tmp_path) as cluster:
        assert cluster.create_topic("orders").startswith("orders-")
"""


@pytest.mark.usefixtures("jars")
def test_fixture_starts_a_cluster_beside_modules_of_pythons_names(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "test_orders.py").write_text(USER_TEST)
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("--import-mode=importlib", "--rootdir", str(tmp_path), str(tmp_path)),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
