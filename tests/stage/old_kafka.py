"""Kafka of old on the JVM: its brokers and tools, and the programs of `tests/jvm` on its releases.

A release's jars come by Maven, once a machine.
"""

import contextlib
import functools
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peer import fetch_jars
from benchmarks.process import spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from tests.stage.java_compiler import compile_java
from tests.stage.stock_kafka import jars
from tests.stage.waiting import DEADLINE_S, block_until
from zk.embedded import find_java

VERSIONS = ("0.8.2.2", "0.10.2.2", "1.1.1")

_SOURCES = Path(__file__).parents[1] / "jvm"
_LOGGING = "org.slf4j:slf4j-log4j12:1.7.25"  # 1.1.1 has none of its own
_OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/java.lang")
_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    f"-Dlog4j.configuration={(_SOURCES / 'log4j.properties').as_uri()}",
    *(word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
)


def program(version: str, name: str, *args: str) -> list[str]:
    """A program of `tests/jvm`, or of a release itself, as a command line. Skips without Maven."""
    return [str(find_java()), *_OPTIONS, "-cp", compiled(version), name, *args]


def run_old_tool(version: str, main: str, *args: str, stdin: str = "") -> str:
    """A tool of a release to its end; what it printed on standard output."""
    command = program(version, main, *args)
    ran = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@contextlib.contextmanager
def old_broker(version: str, zookeeper: str, directory: Path) -> Iterator[str]:
    """A broker of a release until the end of the block; gives its host:port."""
    (port,) = claim_ports(0, 1)
    properties = {
        "broker.id": "0",
        "host.name": HOST,
        "port": str(port),
        "log.dirs": str(directory / "log"),
        "zookeeper.connect": zookeeper,
    }
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "old.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    process = spawn("old-broker", program(version, "kafka.Kafka", str(file)), directory)

    def listens() -> bool:
        process.check_alive()
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1.0):
            return True
        return False

    try:
        block_until(listens, "an old broker that listens")
        yield f"{HOST}:{port}"
    finally:
        process.stop()


@functools.cache
def compiled(version: str) -> str:
    """The class path of all programs, compiled on a release of Kafka."""
    kafka = (f"org.apache.kafka:kafka_2.11:{version}", _LOGGING)
    libraries = jars(lambda: fetch_jars(f"kafka-{version}", kafka))
    return compile_java(version, sorted(_SOURCES.glob("Old*.java")), libraries)
