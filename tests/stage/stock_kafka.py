"""Stock Apache Kafka: its jars, its tools, and a broker of it on a ZooKeeper that runs already."""

import contextlib
import fcntl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from benchmarks.peer import CACHE, PeerMissing, fetch_jars
from benchmarks.process import spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from tests.stage.waiting import DEADLINE_S, block_until
from zk.embedded import find_java

OPTIONS = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


def jars(fetch: Callable[[], Path] = fetch_jars) -> Path:
    """Where Kafka's jars are; the first call on a machine fetches them. Skips without Maven."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers want them too
        try:
            return fetch()
        except PeerMissing as missing:
            pytest.skip(f"missing tool: mvn: {missing}")


def command(main: str, *args: str) -> list[str]:
    """A main class of Kafka's as a command line."""
    return [str(find_java()), *OPTIONS, QUIET, "-cp", f"{jars()}/*", main, *args]


def run_tool(main: str, *args: str) -> str:
    """A tool of Kafka's to its end; all that it printed."""
    ran = subprocess.run(command(main, *args), capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@contextlib.contextmanager
def stock_broker(
    zookeeper: str, directory: Path, settings: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A broker until the end of the block, id 0 unless told; gives its host:port."""
    (port,) = claim_ports(0, 1)
    properties = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(directory / "log"),
        "zookeeper.connect": zookeeper,
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "stock.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    process = spawn("stock-broker", command("kafka.Kafka", str(file)), directory)

    def ready() -> bool:
        process.check_alive()
        with contextlib.suppress(OSError, LoadError):
            return is_serving((HOST, port))
        return False

    try:
        block_until(ready, "a stock broker that serves")
        yield f"{HOST}:{port}"
    finally:
        process.stop(timeout_s=DEADLINE_S)
