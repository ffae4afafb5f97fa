"""A real cluster for your tests: the pytest fixture `kgroup_cluster`, and what it is made of."""

import contextlib
import select
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from protocol.child_python import python_command, python_environment
from protocol.frozen import frozen

MOST_REPLICAS = 3
"""Replicas of a topic; fewer if there are fewer brokers."""
START_DEADLINE_S = 120
STOP_DEADLINE_S = 30
TOPIC_DEADLINE_S = 30
PAUSE_S = 0.05


@frozen
class KgroupCluster:
    """A ZooKeeper and brokers that run on this machine. All their files are in `directory`."""

    bootstrap: str
    zookeeper: str
    directory: Path
    is_secure: bool = False

    def client_settings(self, user: str = "admin") -> dict[str, str]:
        """Return the settings of a client, in Kafka's names.

        On a secured cluster it logs in as `admin`, who may do everything, or as `alice`.
        """
        if not self.is_secure:
            return {"bootstrap.servers": self.bootstrap}

        from protocol.settings import parse_properties

        file = self.directory / "secure" / f"{user}.properties"
        return parse_properties(file.read_text("utf-8"))

    def create_topic(
        self,
        prefix: str = "topic",
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic that no other test has. Returns its name, which begins with `prefix`.

        Without a `replication_factor` its partitions have `default.replication.factor` replicas.
        All brokers know it by then.
        """
        from clients.admin import NewTopic
        from clients.blocking import Admin

        name = f"{prefix}-{uuid.uuid4().hex[:12]}"
        with Admin(self.client_settings()) as admin:
            new = NewTopic(
                name,
                partitions,
                # The broker's default, if nobody asks for another (fault users-8, was: -1).
                replication_factor=-1 if replication_factor is None else replication_factor,
                configs=configs or {},
            )
            verdict = admin.create_topics([new])[name]
        if verdict is not None:
            raise verdict
        for address in self.bootstrap.split(","):
            # Or the next call may say that there is no such topic (fault strangers-105).
            self._wait_until_known(name, address)
        return name

    def _wait_until_known(self, topic: str, address: str) -> None:
        """Return when one broker knows the topic's leaders. Raises TimeoutError."""
        from clients.blocking import Admin
        from clients.errors import BrokerError

        deadline_s = time.monotonic() + TOPIC_DEADLINE_S
        while time.monotonic() < deadline_s:
            # A client of its own, since another one may ask any broker.
            settings = self.client_settings() | {"bootstrap.servers": address}
            with contextlib.suppress(BrokerError), Admin(settings) as admin:
                (described,) = admin.describe_topics([topic]).values()
                if all(known.leader >= 0 for known in described.partitions.values()):
                    return
            time.sleep(PAUSE_S)
        raise TimeoutError(f"the broker at {address} does not know topic {topic}")


@pytest.fixture(scope="session")
def kgroup_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KgroupCluster]:
    """Run a ZooKeeper and one broker for the session."""
    with run_cluster(tmp_path_factory.mktemp("kgroup-cluster")) as cluster:
        yield cluster


@contextlib.contextmanager
def run_cluster(
    directory: Path,
    *,
    brokers: int = 1,
    settings: Mapping[str, str] | None = None,
    secure: bool = False,
) -> Iterator[KgroupCluster]:
    """Run `kbroker dev` on free ports for the block, with `settings` for each broker.

    `directory` may be missing, or that of an earlier cluster. Unless `settings` say otherwise,
    topics have a replica on each broker, three at most. With `secure` clients log in over TLS
    (`client_settings`), and ACLs decide what they may do. It stops at the end of the block, or when
    this process ends, however that ends. Raises RuntimeError if it does not start, with what it has
    to say.
    """
    command = [
        *python_command("broker.kbroker.command", "dev", "--with-parent"),
        *("--port", "0", "--zookeeper-port", "0", "--brokers", str(brokers)),
        *("--data", str(directory)),
    ]
    # With one replica a `min.insync.replicas` of several brokers would refuse all that is sent
    # (fault users-8, was: {}).
    replicated = {"default.replication.factor": str(min(brokers, MOST_REPLICAS))}
    for name, value in (replicated | dict(settings or {})).items():
        command += ["--set", f"{name}={value}"]
    if secure:
        command.append("--secure")

    # A file, as nobody reads it while the cluster runs.
    directory.mkdir(parents=True, exist_ok=True)
    errors = directory / "kbroker-dev.err"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            command,
            env=python_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            yield attrs.evolve(_ready_cluster(process, directory, errors), is_secure=secure)
        finally:
            _stop(process)


def _ready_cluster(process: subprocess.Popen[str], directory: Path, errors: Path) -> KgroupCluster:
    """Wait for the line with the addresses."""
    assert process.stdout is not None
    has_line, _, _ = select.select([process.stdout], [], [], START_DEADLINE_S)
    line = process.stdout.readline() if has_line else ""

    if not line.startswith("ready "):
        raise RuntimeError(f"kbroker dev does not start: {errors.read_text() or 'no ready line'}")
    addresses = dict(word.split("=", 1) for word in line.split()[1:])
    return KgroupCluster(addresses["bootstrap"], addresses["zookeeper"], directory)


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_DEADLINE_S)
    except subprocess.TimeoutExpired:
        # Its brokers and ZooKeeper end with it.
        process.kill()
