"""A stock Kafka of today: one process that is broker and controller, without ZooKeeper."""

import contextlib
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from benchmarks.peer import fetch_jars
from benchmarks.process import spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from tests.stage.stock_kafka import OPTIONS, QUIET, jars
from tests.stage.waiting import DEADLINE_S, block_until
from zk.embedded import find_java

VERSION = "4.1.1"

_KAFKA = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
_TOOLS = (f"org.apache.kafka:kafka-tools:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


@contextlib.contextmanager
def kraft_broker(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[str]:
    """A broker until the end of the block; gives its host:port. Skips without Maven."""
    broker_port, controller_port = claim_ports(0, 2)
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{broker_port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{broker_port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "log"),
        "num.partitions": "1",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": "1",
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "kraft.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))

    formatting = command(
        "kafka.tools.StorageTool", "format", "-g", "-t", _CLUSTER_ID, "-c", str(file)
    )
    formatted = subprocess.run(formatting, capture_output=True, text=True, timeout=DEADLINE_S)
    assert formatted.returncode == 0, formatted.stdout + formatted.stderr

    process = spawn("kraft-broker", command("kafka.Kafka", str(file)), directory)

    def ready() -> bool:
        process.check_alive()
        with contextlib.suppress(OSError, LoadError):
            return is_serving((HOST, broker_port))
        return False

    try:
        block_until(ready, "a broker that serves")
        yield f"{HOST}:{broker_port}"
    finally:
        process.stop(timeout_s=DEADLINE_S)


def command(main: str, *args: str) -> list[str]:
    """A main class of this Kafka's as a command line."""
    libraries = jars(lambda: fetch_jars(f"kafka-{VERSION}", _KAFKA))
    return [str(find_java()), *OPTIONS, QUIET, "-cp", f"{libraries}/*", main, *args]


def run_tool(main: str, *args: str) -> str:
    """A tool of this Kafka's to its end; what it printed on stdout."""
    libraries = jars(lambda: fetch_jars(f"kafka-tools-{VERSION}", _TOOLS))
    tool = [str(find_java()), *OPTIONS, QUIET, "-cp", f"{libraries}/*", main, *args]
    ran = subprocess.run(tool, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
