"""Brokers under measurement: ours or the peer's, each a process of its own, with equal settings."""

import asyncio
import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs

from benchmarks.load import Address, LoadError, LoadResult, ask, connect, drive
from benchmarks.process import Process, spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import LATEST_TIME, Admin, NewTopic
from protocol.api_key import ApiKey
from protocol.header import encode_request, read_response
from protocol.messages.metadata import MetadataRequest
from protocol.topic_partition import TopicPartition

START_TIMEOUT_S = 60.0
_POLL_S = 0.01
_PROPERTIES = "server.properties"

SETTINGS = {
    "broker.id": "0",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    # What a round wrote must be off the disk before the next round.
    "log.segment.delete.delay.ms": "0",
}

T = TypeVar("T")

_topic_numbers = itertools.count()


@attrs.frozen
class Side:
    """How a broker is started: its command, to which a properties file is added."""

    name: str
    command: tuple[str, ...]
    zookeeper: str

    @property
    def python(self) -> Sequence[str]:
        """The interpreter of one of ours, and where it runs."""
        return self.command[: self.command.index("-m")]


@attrs.define(eq=False)
class Broker:
    """A broker that serves. `start_s` is the time from its start to its first good answer."""

    name: str
    address: Address
    zookeeper: str
    process: Process
    start_s: float

    @property
    def bootstrap(self) -> str:
        """host:port."""
        return "{}:{}".format(*self.address)

    @contextlib.contextmanager
    def create_topic(self, partitions: int = 1) -> Iterator[str]:
        """A new topic whose partitions have leaders; it goes at the end."""
        name = f"benchmark-{next(_topic_numbers)}"
        ends = dict.fromkeys((TopicPartition(name, p) for p in range(partitions)), LATEST_TIME)

        async def create(admin: Admin) -> None:
            errors = await admin.create_topics([NewTopic(name, partitions, 1)])
            if errors[name]:
                raise LoadError(f"{self.name} makes no topic: {errors[name]}")
            if any(end.error for end in (await admin.list_offsets(ends)).values()):
                raise LoadError(f"{self.name} has no leaders for {name}")

        async def delete(admin: Admin) -> None:
            await admin.delete_topics([name])

        self.administer(create)
        try:
            yield name
        finally:
            self.administer(delete)

    def read_end_offset(self, topic: str) -> int:
        """Where partition 0 of a topic ends."""
        partition = TopicPartition(topic, 0)

        async def listed(admin: Admin) -> int:
            return (await admin.list_offsets({partition: LATEST_TIME}))[partition].offset

        return self.administer(listed)

    def read_offsets(self, group: str) -> dict[TopicPartition, int]:
        """What a group has committed. The first call makes the broker's offsets topic."""

        async def fetched(admin: Admin) -> dict[TopicPartition, int]:
            return {tp: at.offset for tp, at in (await admin.group_offsets(group)).items()}

        return self.administer(fetched)

    def drive(
        self, plans: Sequence[Sequence[bytes]], outstanding: int, seconds: float
    ) -> tuple[LoadResult, float]:
        """Put load on it; what that came to, and how many processor cores the broker used."""
        cpu_s = self.process.cpu_s
        driven = drive(self.address, plans, outstanding=outstanding, seconds=seconds)
        return driven, (self.process.cpu_s - cpu_s) / driven.seconds

    def administer(
        self, use: Callable[[Admin], Coroutine[Any, Any, T]], timeout_ms: int = 30_000
    ) -> T:
        """Do something with an admin client, each request of which may take so long."""

        async def run() -> T:
            async with Admin(self.bootstrap, **{"request.timeout.ms": str(timeout_ms)}) as admin:
                return await use(admin)

        return asyncio.run(run())


def make_our_side(zookeeper: str) -> Side:
    """How a broker of ours is started."""
    return Side("ours", (*_kbroker(), "start"), zookeeper)


def make_earlier_side(checkout: Path, zookeeper: str) -> Side:
    """How a broker of another checkout, which has a virtual environment, is started."""
    python = str(checkout / ".venv" / "bin" / "python")
    return Side("before", ("env", "-C", str(checkout), *_kbroker(python), "start"), zookeeper)


def start_our_zookeeper(directory: Path) -> tuple[Process, str]:
    """The embedded ZooKeeper as a child, and where it listens."""
    (port,) = claim_ports(0, 1)
    command = [*_kbroker(), "zookeeper", "--port", str(port), "--data", str(directory)]
    process = spawn("zookeeper-of-ours", command, directory)
    await_zookeeper(process, port)
    return process, f"{HOST}:{port}"


def await_zookeeper(process: Process, port: int) -> None:
    """Return when ZooKeeper answers `srvr` with statistics. Raises RuntimeError."""

    def is_serving() -> bool:
        with connect((HOST, port)) as connection:
            connection.sendall(b"srvr")
            return connection.recv(1024).startswith(b"Zookeeper version")

    _until(is_serving, process)


@attrs.frozen
class Installation:
    """A broker's settings and its place, in which it may be started again and again."""

    side: Side
    address: Address
    zookeeper: str
    directory: Path

    @property
    def log_directory(self) -> Path:
        """Where its logs are."""
        return self.directory / "log"

    def start(self) -> Broker:
        """Return when it serves. Raises RuntimeError."""
        begins = time.perf_counter()
        command = [*self.side.command, str(self.directory / _PROPERTIES)]
        process = spawn("broker", command, self.directory)
        _until(lambda: is_serving(self.address), process)
        start_s = time.perf_counter() - begins
        return Broker(self.side.name, self.address, self.zookeeper, process, start_s)


def install(
    side: Side, directory: Path, chroot: str, settings: Mapping[str, str] | None = None
) -> Installation:
    """Give a broker empty data and an empty part of its ZooKeeper, and `settings` of its own."""
    (port,) = claim_ports(0, 1)
    zookeeper = f"{side.zookeeper}/{chroot}"
    place = Installation(side, (HOST, port), zookeeper, directory)
    all_settings = {
        **SETTINGS,
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(place.log_directory),
        "zookeeper.connect": zookeeper,
        **(settings or {}),
    }
    directory.mkdir(parents=True)
    text = "".join(f"{name}={value}\n" for name, value in all_settings.items())
    (directory / _PROPERTIES).write_text(text)
    return place


def start_broker(side: Side, directory: Path, chroot: str) -> Broker:
    """Start a broker on empty data and an empty part of its ZooKeeper. Raises RuntimeError."""
    return install(side, directory, chroot).start()


def is_serving(address: Address) -> bool:
    """Whether a broker answers that it lives and that there is a controller."""
    request = encode_request(ApiKey.METADATA, 1, 0, "benchmarks", MetadataRequest(topics=[]))
    with connect(address) as connection:
        _, metadata = read_response(ApiKey.METADATA, 1, ask(connection, request))
    return metadata.controller_id in {broker.node_id for broker in metadata.brokers}


def _until(holds: Callable[[], bool], process: Process) -> None:
    ends = time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError, LoadError):
            if holds():
                return
        process.check_alive()
        if time.monotonic() > ends:
            raise RuntimeError(f"{process.name} does not serve after {START_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _kbroker(python: str = sys.executable) -> tuple[str, ...]:
    return (python, "-m", "broker.kbroker.command")
