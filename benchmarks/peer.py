"""The peer: stock Apache Kafka 2.8.2 and the ZooKeeper it comes with, fetched by Maven once.

The heap is bounded to 1 GB, as Kafka's own start script does, and the collector's settings are that
script's; all else is Kafka's default.
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
    """There is no peer on this machine; the message says why, in one sentence."""


def fetch_jars(name: str = f"kafka-{VERSION}", wanted: Sequence[str] = _KAFKA) -> Path:
    """The directory of the jars, filled on the first call with those of the coordinates `wanted`
    (group:artifact:version) and all they need. Raises PeerMissing.
    """
    jars = CACHE / name / "libs"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerMissing("There is no mvn here to fetch Kafka with, so our figures stand alone.")
    jars.parent.mkdir(parents=True, exist_ok=True)
    pom = jars.parent / "pom.xml"
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":")) for coordinate in wanted)
    pom.write_text(_POM.format(dependencies), "utf-8")
    fetched = jars.parent / "fetching"
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    ran = subprocess.run(
        [*command, f"-DoutputDirectory={fetched}"], stdin=subprocess.DEVNULL, capture_output=True
    )
    if ran.returncode:
        said = (ran.stdout + ran.stderr).decode(errors="replace").strip().splitlines()
        why = said[0] if said else f"mvn ended with {ran.returncode}"
        raise PeerMissing(f"Maven could not fetch Kafka, so our figures stand alone: {why}")
    return fetched.rename(jars)


def start_zookeeper(jars: Path, directory: Path) -> tuple[Process, str]:
    """Kafka's ZooKeeper as a child, and where it listens."""
    directory.mkdir(parents=True)
    (port,) = claim_ports(0, 1)
    config = directory / "zoo.cfg"
    config.write_text(
        f"dataDir={directory}\nclientPort={port}\nclientPortAddress={HOST}\n"
        "tickTime=1000\nadmin.enableServer=false\nmaxClientCnxns=0\n",
        "utf-8",
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    command = [*_java(jars, *_ZOOKEEPER_OPTIONS), main, str(config)]
    process = spawn("kafka-zookeeper", command, directory)
    await_zookeeper(process, port)
    return process, f"{HOST}:{port}"


def make_side(jars: Path, zookeeper: str) -> Side:
    """How a broker of the peer is started."""
    return Side(NAME, (*_java(jars, *_BROKER_OPTIONS), "kafka.Kafka"), zookeeper)


def _java(jars: Path, *options: str) -> list[str]:
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(find_java()), *options, "-Djava.awt.headless=true", quiet, "-cp", f"{jars}/*"]
