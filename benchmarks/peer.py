"""The peer is stock Apache Kafka 2.8.2 with its own ZooKeeper, which Maven fetches once.

The heap is bounded to 1 GB and the garbage collector is set as in Kafka's own start script; all
other settings are Kafka's defaults.
"""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.brokers import Side, await_zookeeper
from benchmarks.process import Process, spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from zk.embedded import find_java

VERSION = "2.8.2"
NAME = f"Kafka {VERSION}"
CACHE = Path(__file__).resolve().parent.parent / "build"

_KAFKA = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.30")
_POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>kgroup</groupId><artifactId>peer</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""
_BROKER_OPTIONS = (
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
_ZOOKEEPER_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC")


class PeerMissing(Exception):
    """The peer cannot be run on this machine; the message says why in one sentence."""


def fetch_jars(name: str = f"kafka-{VERSION}", wanted: Sequence[str] = _KAFKA) -> Path:
    """Return the directory of the jars; the first call fetches them. Raises PeerMissing.

    `wanted` are Maven coordinates (group:artifact:version), whose dependencies are fetched too.
    """
    jars = CACHE / name / "libs"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing("Maven (mvn) is missing to fetch Kafka, so our figures stand alone.")

    jars.parent.mkdir(parents=True, exist_ok=True)
    pom = jars.parent / "pom.xml"
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":")) for coordinate in wanted)
    pom.write_text(_POM.format(dependencies), "utf-8")

    # The jars get their final name when all are there.
    incomplete = jars.parent / "fetching"
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    result = subprocess.run(
        [*command, f"-DoutputDirectory={incomplete}"], stdin=subprocess.DEVNULL, capture_output=True
    )
    if result.returncode:
        # Maven's first line names the cause.
        lines = (result.stdout + result.stderr).decode(errors="replace").strip().splitlines()
        reason = lines[0] if lines else f"mvn ended with {result.returncode}"
        raise PeerMissing(f"Maven could not fetch Kafka, so our figures stand alone: {reason}")
    return incomplete.rename(jars)


def start_zookeeper(jars: Path, directory: Path) -> tuple[Process, str]:
    """Start Kafka's ZooKeeper as a child; return it and its address."""
    directory.mkdir(parents=True)
    (port,) = claim_ports(0, 1)
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory}\nclientPort={port}\nclientPortAddress={HOST}\n"
        # No limit of connections: all of them come from this machine.
        "tickTime=1000\nadmin.enableServer=false\nmaxClientCnxns=0\n",
        "utf-8",
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = [*_java(jars, *_ZOOKEEPER_OPTIONS), main, str(config)]
    process = spawn("kafka-zookeeper", command, directory)
    await_zookeeper(process, port)
    return process, f"{HOST}:{port}"


def make_side(jars: Path, zookeeper: str) -> Side:
    """Return the side of the peer's brokers."""
    return Side(NAME, (*_java(jars, *_BROKER_OPTIONS), "kafka.Kafka"), zookeeper)


def _java(jars: Path, *options: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(find_java()), *options, "-Djava.awt.headless=true", quiet, "-cp", f"{jars}/*"]
