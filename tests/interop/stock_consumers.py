"""The kinds of stock consumers: which strategies each knows, and how its driver is started.

A driver (`drivers/`) is a small program around a stock client. All take the same arguments and
write the same lines. Those in Go and Node are built when they are first asked for, and kept beside
the jars of Kafka until their sources change; those in Java are compiled by each process.
"""

import functools
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from benchmarks.peer import fetch_jars
from tests.interop.builds import built, run, tool
from tests.stage.java_compiler import compile_java
from tests.stage.stock_kafka import jars
from zk.embedded import find_java

RANGE, ROUND_ROBIN = "range", "roundrobin"
STICKY, COOPERATIVE = "sticky", "cooperative-sticky"

_DRIVERS = Path(__file__).parent / "drivers"
_JAVA_OPTIONS = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_JAVA_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_JAVA_LOGGING = "org.slf4j:slf4j-simple:1.7.36"


@attrs.frozen
class Kind:
    """A stock client.

    - `strategies`: the first one is that of its quick start.
    - `restarts_with`: strategies with which a static member restarts and nobody notices. kafkajs
      knows no instance ids. A leader of franz-go works its plan out again, and has all join again
      if its own part is another than before.
    - `is_patient`: it stays in its generation while connections to its coordinator are refused. One
      that is not joins again, and the others with it.
    - `follows`: it stays in its generation when another broker is elected coordinator. sarama ends
      its session at the first such response, and kafkajs asks the same broker again until its
      retries are used up (9 s), and begins anew as another member (9 s later).
    """

    name: str
    command: Callable[[], list[str]] = attrs.field(repr=False)
    strategies: Sequence[str] = (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE)
    restarts_with: Sequence[str] = (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE)
    is_patient: bool = True
    follows: bool = True

    @property
    def first_strategy(self) -> str:
        """Return what the quick tests take."""
        return self.strategies[0]

    def __str__(self) -> str:
        return self.name


# ---- how each is started


def python_driver(module: str) -> list[str]:
    """Return the command of a driver in Python."""
    return [sys.executable, "-m", f"tests.interop.drivers.{module}"]


@functools.cache
def java_driver(program: str, version: str) -> list[str]:
    """Return the command of a driver in Java with this version of Kafka's clients."""
    client = (f"org.apache.kafka:kafka-clients:{version}", _JAVA_LOGGING)
    libraries = jars(lambda: fetch_jars(f"kafka-clients-{version}", client))
    sources = [_DRIVERS / "java" / f"{program}.java"]
    classes = compile_java(f"{program}-{version}", sources, libraries)
    return [str(find_java()), *_JAVA_OPTIONS, _JAVA_QUIET, "-cp", classes, program]


def go_driver(name: str) -> list[str]:
    """Return the command of a driver in Go, which is built with all others."""
    module = _DRIVERS / "go"
    sources = [*module.glob("go.*"), *module.glob("*/*.go")]

    def build(directory: Path) -> None:
        run([tool("go", "golang-go"), "build", "-o", f"{directory}/", "./..."], module)

    return [str(built("go", sources, build) / name)]


def node_driver(script: str) -> list[str]:
    """Return the command of a driver in JavaScript."""
    node = tool("node", "nodejs")
    sources = [*(_DRIVERS / "node").glob("*.js*")]

    def build(directory: Path) -> None:
        for source in sources:
            shutil.copy(source, directory)
        run([tool("npm", "npm"), "ci", "--no-audit", "--no-fund"], directory)

    return [node, str(built("node", sources, build) / script)]


# ---- the kinds

EAGER = (RANGE, ROUND_ROBIN, STICKY)

JAVA_2_3 = Kind("java-2.3", functools.partial(java_driver, "GroupMember", "2.3.1"), EAGER)
JAVA_2_8 = Kind("java-2.8", functools.partial(java_driver, "GroupMember", "2.8.2"))
JAVA_3_9 = Kind("java-3.9", functools.partial(java_driver, "GroupMember", "3.9.1"))
LIBRDKAFKA = Kind(
    "librdkafka", functools.partial(python_driver, "librdkafka"), (RANGE, ROUND_ROBIN, COOPERATIVE)
)
FRANZ_GO = Kind(
    "franz-go",
    functools.partial(go_driver, "franz-go"),
    (COOPERATIVE, RANGE, ROUND_ROBIN, STICKY),
    restarts_with=(RANGE, ROUND_ROBIN),
    is_patient=False,
)
SARAMA = Kind(
    "sarama", functools.partial(go_driver, "sarama"), EAGER, is_patient=False, follows=False
)
KAFKAJS = Kind(
    "kafkajs",
    functools.partial(node_driver, "member.js"),
    (ROUND_ROBIN,),
    restarts_with=(),
    is_patient=False,
    follows=False,
)
KAFKA_PYTHON = Kind("kafka-python", functools.partial(python_driver, "kafka_python"))
AIOKAFKA = Kind(
    "aiokafka", functools.partial(python_driver, "aiokafka"), (ROUND_ROBIN, RANGE, STICKY)
)
OURS = Kind("ours", functools.partial(python_driver, "ours"))
"""Our own member, beside those that are stock."""

KINDS = (
    JAVA_2_3,
    JAVA_2_8,
    JAVA_3_9,
    LIBRDKAFKA,
    FRANZ_GO,
    SARAMA,
    KAFKAJS,
    KAFKA_PYTHON,
    AIOKAFKA,
)
