"""One broker's logs and ZooKeeper tree, served in turn by releases of Kafka and by us.

Whoever serves takes over what the one before has left, by a clean stop or by SIGKILL. What has been
written so far is known here, so that each can be asked for the whole of it.
"""

import asyncio
import contextlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from benchmarks.peer import fetch_jars
from benchmarks.process import spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from core_log.log_dir import CLEAN_SHUTDOWN
from core_log.segments.file_name import INDEX, LOG, TIME_INDEX
from protocol.topic_partition import TopicPartition
from tests.stage.old_kafka import program
from tests.stage.processes import ROOT, command_line
from tests.stage.segment_files import KINDS
from tests.stage.stock_kafka import OPTIONS, QUIET, command, jars
from tests.stage.topic_contents import contents
from tests.stage.waiting import DEADLINE_S, block_until
from tests.stage.zookeeper import zookeeper_session
from zk.api import NoNode
from zk.embedded import find_java
from zk.znodes import BrokerId, ClusterId, Controller

OURS, LATEST, NEWEST = "ours", "2.8.2", "3.9.1"
"""We, the release that we are like, and the last one that works with ZooKeeper."""
BEFORE_IDS = "2.3.1"
"""A release that knows no ids of topics."""
CLUSTER_ID = "ThisClusterHasLogs_1-2"
CODECS = ("none", "gzip", "snappy", "lz4")

SETTINGS = {
    "broker.id": "0",
    "zookeeper.session.timeout.ms": "20000",  # a busy machine is nothing to complain of
    "log.segment.bytes": "4000",
    "log.index.interval.bytes": "300",
    "log.index.size.max.bytes": "20000",
    "log.retention.ms": "-1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4000000",
    "log.segment.delete.delay.ms": "500",
}

_COMPLAINT = re.compile(
    r"\b(WARN|WARNING|ERROR|FATAL|CRITICAL)\b(?! kafka.network.)(?!.*event loop)"
)
"""Not those of stock brokers about clients that went before they had their answer, nor those of our
watchdog: a machine that has much else to do makes turns long."""

Line = tuple[int, bytes | None, bytes | None]
"""Offset, key and value of a record."""


@attrs.define(eq=False)
class Site:
    """A directory, a tree, and what should be in them: by topic, all that was ever acknowledged."""

    zookeeper: str
    directory: Path
    written: dict[str, list[Line]] = attrs.field(factory=dict, init=False)

    @property
    def log_dir(self) -> Path:
        """The brokers' one directory of logs."""
        return self.directory / "log"

    @contextlib.contextmanager
    def served_by(
        self, make: str, settings: Mapping[str, str] | None = None, *, killed: bool = False
    ) -> Iterator[str]:
        """A broker, ours or of a release of Kafka, until the end of the block; its host:port.

        It is stopped in good order and so held to its word, or `killed`.
        """
        (port,) = claim_ports(0, 1)
        places = {
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(self.log_dir),
            "zookeeper.connect": self.zookeeper,
        }
        file = self.directory / "server.properties"
        properties = SETTINGS | places | dict(settings or {})
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        process = spawn(f"broker-{make}", command_of(make, file), self.directory)

        def ready() -> bool:
            process.check_alive()
            with contextlib.suppress(OSError, LoadError):
                return is_serving((HOST, port))
            return False

        try:
            block_until(ready, f"{make} that serves")
            yield f"{HOST}:{port}"
        finally:
            process.stop(at_once=killed, timeout_s=DEADLINE_S)
        clean = self.log_dir / CLEAN_SHUTDOWN
        assert clean.exists() != killed, process.log_file.read_text()
        if killed:
            asyncio.run(self._end_session())

    async def found_cluster(self) -> None:
        """Give the tree its cluster id: 0.10 can make none with a Java of today."""
        async with zookeeper_session(self.zookeeper, create_chroot=True) as session:
            await session.ensure_path("/cluster")
            await session.create(ClusterId.path(), ClusterId(CLUSTER_ID).encode())

    async def _end_session(self) -> None:
        """Of a broker that was killed, without waiting for it: its nodes go."""
        async with zookeeper_session(self.zookeeper, create_chroot=True) as session:
            for path in (BrokerId.path(0), Controller.path()):
                with contextlib.suppress(NoNode):
                    await session.delete(path)

    async def create(self, bootstrap: str, topic: str, **configs: str) -> None:
        """A topic of one partition; the names of its settings with _ for a dot."""
        wanted = {name.replace("_", "."): value for name, value in configs.items()}
        async with Admin(bootstrap) as admin:
            made = await admin.create_topics([NewTopic(topic, 1, 1, configs=wanted)])
        assert made == {topic: None}

    async def write(
        self,
        bootstrap: str,
        topic: str,
        word: str,
        codecs: Iterable[str] = CODECS,
        *,
        count: int = 30,
        keys: int = 7,
        **settings: object,
    ) -> None:
        """So many records in each codec, some without a value, in several batches."""
        for codec in codecs:
            async with Producer(
                bootstrap_servers=bootstrap,
                compression_type=codec,
                acks="all",
                linger_ms=20,
                batch_size=700,
                **settings,
            ) as producer:
                sent = []
                for number in range(count):
                    key = b"key %d" % (number % keys)
                    value = f"{word} {codec} {number} ".encode() + b"%x" % number**30
                    stored = None if number % 11 == 10 else value
                    delivery = await producer.send(topic, stored, key=key, partition=0)
                    sent.append((delivery, key, stored))
                self.written.setdefault(topic, []).extend(
                    [((await delivery).offset, key, value) for delivery, key, value in sent]
                )

    async def read(self, bootstrap: str, topic: str) -> list[Line]:
        """All that a broker has of it."""
        records = await contents(bootstrap, TopicPartition(topic, 0))
        return [(record.offset, record.key, record.value) for record in records]

    async def assert_whole(self, bootstrap: str, *topics: str) -> None:
        """Every record ever written to them is there, and no other."""
        for topic in topics:
            assert await self.read(bootstrap, topic) == self.written[topic], topic

    async def assert_cleaned(self, bootstrap: str, topic: str) -> None:
        """Half of it goes, soon; what stays was written so, and each key's newest value stays."""
        at_most = len(self.written[topic]) // 2
        async with asyncio.timeout(DEADLINE_S):
            while len(found := await self.read(bootstrap, topic)) > at_most:
                await asyncio.sleep(0.2)
        assert set(found) <= set(self.written[topic])
        assert [line[0] for line in found] == sorted({line[0] for line in found})
        newest = {key: value for _, key, value in self.written[topic]}
        assert {key: value for _, key, value in found} == newest

    def segments(self, topic: str) -> list[Path]:
        """The logs of its partition."""
        return sorted((self.log_dir / f"{topic}-0").glob("*.log"))

    def tear(self, topic: str) -> None:
        """What a crash may leave of a batch that was being written."""
        *_, active = self.segments(topic)
        first = self.segments(topic)[0].read_bytes()
        with active.open("ab") as log:
            log.write(first[:100])

    def half_swap(self, topic: str) -> None:
        """What a crash may leave of a swap of segments for cleaned ones, at three of its steps."""
        renamed, copied, begun, *_ = self.segments(topic)
        for kind in (LOG, INDEX, TIME_INDEX):
            shutil.copy(renamed.with_suffix(kind), f"{renamed.with_suffix(kind)}.swap")
            renamed.with_suffix(kind).rename(f"{renamed.with_suffix(kind)}.deleted")
            shutil.copy(copied.with_suffix(kind), f"{copied.with_suffix(kind)}.swap")
            shutil.copy(begun.with_suffix(kind), f"{begun.with_suffix(kind)}.cleaned")

    def leftovers(self, topic: str) -> list[Path]:
        """Files of swaps that nobody has finished."""
        return [
            *(self.log_dir / f"{topic}-0").glob("*.swap"),
            *(self.log_dir / f"{topic}-0").glob("*.cleaned"),
        ]

    def magics(self, topic: str) -> set[int]:
        """The formats of the first entries of its segments."""
        heads = [path.read_bytes()[:17] for path in self.segments(topic)]
        return {head[16] for head in heads if head}

    def complaints(self, make: str) -> list[str]:
        """The warnings and errors of a broker's log so far."""
        lines = (self.directory / f"broker-{make}.log").read_text().splitlines()
        return [line for line in lines if _COMPLAINT.search(line)]

    def files(self, topic: str) -> list[str]:
        """All of its partition that can be dumped, as seen from `log_dir`."""
        directory = self.log_dir / f"{topic}-0"
        names = sorted(path.name for path in directory.iterdir() if path.suffix in KINDS)
        return [f"{directory.name}/{name}" for name in names]

    def verify(self) -> None:
        """`kbroker log verify` finds nothing wrong."""
        verified = subprocess.run(
            command_line("kbroker", "log", "verify", str(self.log_dir)),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
        )
        assert (verified.returncode, verified.stdout) == (0, ""), verified.stdout


def command_of(make: str, properties: Path) -> list[str]:
    """How a broker is started."""
    if make == OURS:
        return [sys.executable, "-m", "broker.kbroker.command", "start", str(properties)]
    if make == LATEST:
        return command("kafka.Kafka", str(properties))
    if make in (BEFORE_IDS, NEWEST):
        scala = "2.12" if make == BEFORE_IDS else "2.13"
        wanted = [f"org.apache.kafka:kafka_{scala}:{make}", "org.slf4j:slf4j-simple:1.7.36"]
        # Its own, 3.4.14, finds no address on a Java of today; Kafka 2.4 has this one.
        if make == BEFORE_IDS:
            wanted.append("org.apache.zookeeper:zookeeper:3.5.9")
        libraries = jars(lambda: fetch_jars(f"kafka-{make}", wanted))
        options = (*OPTIONS, QUIET, "-cp", f"{libraries}/*")
        return [str(find_java()), *options, "kafka.Kafka", str(properties)]
    return program(make, "kafka.Kafka", str(properties))
