"""Kafka of old on the JVM: its brokers and tools, and the programs of `tests/jvm` on its releases.

A release's jars come by Maven, once a machine. The programs are compiled by each process that runs
tests, for itself, by `javac` or, where there is only a Java to run with, by the Eclipse compiler.
"""

import contextlib
import functools
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peer import fetch_jars
from benchmarks.process import spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from tests.stage.stock_kafka import jars
from tests.stage.waiting import DEADLINE_S, block_until
from zk.embedded import find_java

VERSIONS = ("0.8.2.2", "0.10.2.2", "1.1.1")

_SOURCES = Path(__file__).parents[1] / "jvm"
_LOGGING = "org.slf4j:slf4j-log4j12:1.7.25"  # 1.1.1 has none of its own
_COMPILER = "org.eclipse.jdt:ecj:3.33.0"  # the last that runs on Java 17 needs nothing newer
_COMPILER_MAIN = "org.eclipse.jdt.internal.compiler.batch.Main"
_COMPILE_S = 120.0
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
    class_path = _joined([*libraries.glob("*.jar")])
    classes = Path(_of_this_process().name) / version
    sources = map(str, sorted(_SOURCES.glob("*.java")))
    arguments = ["-proc:none", "-nowarn", "-cp", class_path, "-d", str(classes), *sources]
    ran = subprocess.run(
        [*_compiler(), *arguments], capture_output=True, text=True, timeout=_COMPILE_S
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return _joined([classes, *libraries.glob("*.jar")])


@functools.cache
def _of_this_process() -> tempfile.TemporaryDirectory[str]:
    """Classes that another one's compiler replaces can't be loaded at that moment."""
    return tempfile.TemporaryDirectory(prefix="classes-")


def _compiler() -> list[str]:
    java = find_java()
    javac = java.with_name("javac")
    if javac.exists():
        return [str(javac)]
    eclipse = jars(lambda: fetch_jars("ecj", [_COMPILER]))
    class_path = _joined([*eclipse.glob("*.jar")])
    return [str(java), "-cp", class_path, _COMPILER_MAIN, "-source", "17", "-target", "17"]


def _joined(paths: Sequence[Path]) -> str:
    return ":".join(map(str, paths))
