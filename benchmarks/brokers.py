"""Start brokers to be measured, ours or the peer's: a process each, with equal settings."""

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
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # A group's first member does not wait for others.
    "group.initial.rebalance.delay.ms": "0",
    # The data of a round must be off the disk before the next round.
    "log.segment.delete.delay.ms": "0",
}

T = TypeVar("T")

_topic_numbers = itertools.count()


@attrs.frozen
class Side:
    """A kind of broker: `command` starts one, with a properties file as its last argument."""

    name: str
    command: tuple[str, ...]
    zookeeper: str

    @property
    def python(self) -> Sequence[str]:
        """The beginning of our command: the interpreter, in its directory."""
        return self.command[: self.command.index("-m")]


@attrs.define(eq=False)
class Broker:
    """A broker that serves. `start_s`: seconds from its start to its first good response."""

    name: str
    address: Address
    zookeeper: str
    process: Process
    start_s: float

    @property
    def bootstrap(self) -> str:
        """The broker's address as host:port."""
        return "{}:{}".format(*self.address)

    @contextlib.contextmanager
    def create_topic(self, partitions: int = 1) -> Iterator[str]:
        """Create a topic, wait until its partitions have leaders, and delete it at the end."""
        name = f"benchmark-{next(_topic_numbers)}"
        ends = dict.fromkeys((TopicPartition(name, p) for p in range(partitions)), LATEST_TIME)

        async def create(admin: Admin) -> None:
            errors = await admin.create_topics([NewTopic(name, partitions, 1)])
            if errors[name]:
                raise LoadError(f"{self.name} does not create a topic: {errors[name]}")

            # ListOffsets succeeds only when each partition has a leader.
            if any(end.error for end in (await admin.list_offsets(ends)).values()):
                raise LoadError(f"{self.name} has no leaders for {name}")

        async def delete(admin: Admin) -> None:
            await admin.delete_topics([name])

        # The topic is there before the block, and deleted even if the block fails.
        self.administer(create)
        try:
            yield name
        finally:
            self.administer(delete)

    def read_end_offset(self, topic: str) -> int:
        """Read the end offset of partition 0 of a topic."""
        partition = TopicPartition(topic, 0)

        async def list_end(admin: Admin) -> int:
            return (await admin.list_offsets({partition: LATEST_TIME}))[partition].offset

        return self.administer(list_end)

    def read_offsets(self, group: str) -> dict[TopicPartition, int]:
        """Read the committed offsets of a group; the first call creates the offsets topic."""

        async def fetch(admin: Admin) -> dict[TopicPartition, int]:
            offsets = await admin.group_offsets(group)
            return {partition: committed.offset for partition, committed in offsets.items()}

        return self.administer(fetch)

    def drive(
        self, plans: Sequence[Sequence[bytes]], outstanding: int, seconds: float
    ) -> tuple[LoadResult, float]:
        """Put load on the broker; return the result and the processor cores that it used."""
        # Cores are processor seconds for each second of load.
        cpu_s = self.process.cpu_s
        driven = drive(self.address, plans, outstanding=outstanding, seconds=seconds)
        return driven, (self.process.cpu_s - cpu_s) / driven.seconds

    def administer(
        self, use: Callable[[Admin], Coroutine[Any, Any, T]], timeout_ms: int = 30_000
    ) -> T:
        """Run `use` with an admin client, whose requests may take `timeout_ms` each."""

        async def run() -> T:
            async with Admin(self.bootstrap, **{"request.timeout.ms": str(timeout_ms)}) as admin:
                return await use(admin)

        return asyncio.run(run())


def make_our_side(zookeeper: str) -> Side:
    """Return the side of our brokers."""
    return Side("ours", (*_kbroker(), "start"), zookeeper)


def make_earlier_side(checkout: Path, zookeeper: str) -> Side:
    """Return the side of another checkout of ours, which has a virtual environment."""
    # `env -C` runs the command in its own checkout, whose code it imports.
    python = str(checkout / ".venv" / "bin" / "python")
    return Side("before", ("env", "-C", str(checkout), *_kbroker(python), "start"), zookeeper)


def start_our_zookeeper(directory: Path) -> tuple[Process, str]:
    """Start the embedded ZooKeeper as a child; return it and its address."""
    (port,) = claim_ports(0, 1)
    command = [*_kbroker(), "zookeeper", "--port", str(port), "--data", str(directory)]
    process = spawn("zookeeper-of-ours", command, directory)
    await_zookeeper(process, port)
    return process, f"{HOST}:{port}"


def await_zookeeper(process: Process, port: int) -> None:
    """Return when ZooKeeper responds to `srvr` with statistics. Raises RuntimeError."""

    def is_serving() -> bool:
        with connect((HOST, port)) as connection:
            connection.sendall(b"srvr")
            return connection.recv(1024).startswith(b"Zookeeper version")

    await_true(is_serving, process)


@attrs.frozen
class Installation:
    """A broker's settings and data, on which it may be started again and again."""

    side: Side
    address: Address
    zookeeper: str
    directory: Path

    @property
    def log_directory(self) -> Path:
        """The log directory of the broker."""
        return self.directory / "log"

    def add_listener(self, protocol: str) -> Address:
        """Add a listener beside the plaintext one, before `start`; return its address."""
        (port,) = claim_ports(0, 1)
        host, plaintext = self.address

        # The last line of a name counts.
        with (self.directory / _PROPERTIES).open("a") as file:
            file.write(f"listeners=PLAINTEXT://{host}:{plaintext},{protocol}://{host}:{port}\n")
        return host, port

    def start(self) -> Broker:
        """Start the broker; return when it serves. Raises RuntimeError."""
        begins = time.perf_counter()
        command = [*self.side.command, str(self.directory / _PROPERTIES)]
        process = spawn("broker", command, self.directory)
        await_true(lambda: is_serving(self.address), process)
        start_s = time.perf_counter() - begins
        return Broker(self.side.name, self.address, self.zookeeper, process, start_s)


def install(
    side: Side, directory: Path, chroot: str, settings: Mapping[str, str] | None = None
) -> Installation:
    """Prepare a broker with empty data, an empty part of its ZooKeeper, and these settings."""
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

    # The properties file is the broker's last argument.
    directory.mkdir(parents=True)
    text = "".join(f"{name}={value}\n" for name, value in all_settings.items())
    (directory / _PROPERTIES).write_text(text)
    return place


def start_broker(side: Side, directory: Path, chroot: str) -> Broker:
    """Start a broker on empty data and an empty part of its ZooKeeper. Raises RuntimeError."""
    return install(side, directory, chroot).start()


def is_serving(address: Address) -> bool:
    """True if a broker responds with a controller that is live."""
    request = encode_request(ApiKey.METADATA, 1, 0, "benchmarks", MetadataRequest(topics=[]))
    with connect(address) as connection:
        _, metadata = read_response(ApiKey.METADATA, 1, ask(connection, request))
    return metadata.controller_id in {broker.node_id for broker in metadata.brokers}


def await_true(holds: Callable[[], bool], process: Process) -> None:
    """Return when something holds that a process brings about. Raises RuntimeError."""
    ends = time.monotonic() + START_TIMEOUT_S
    while True:
        # Until it listens, connections are refused or closed.
        with contextlib.suppress(OSError, LoadError):
            if holds():
                return
        process.check_alive()
        if time.monotonic() > ends:
            raise RuntimeError(f"{process.name} does not serve after {START_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _kbroker(python: str = sys.executable) -> tuple[str, ...]:
    return (python, "-m", "broker.kbroker.command")
