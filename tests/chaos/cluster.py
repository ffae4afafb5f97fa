"""Three real brokers and a real ZooKeeper, as processes that can be hurt one by one.

    DIR/zookeeper/            the embedded ZooKeeper's data and log
    DIR/broker-N.properties   what broker N is started with
    DIR/broker-N.log          its output, over all its starts
    DIR/broker-N/             its partitions

Each broker listens at two ports of its own and advertises two of the network's, one for clients and
one for its peers; and it has a port of the network's to ZooKeeper. So every link can be cut alone.

The brokers are ours, or of a release of Kafka.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import attrs

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from broker.kbroker.local_cluster import claim_ports
from tests.chaos.network import CLIENTS, HOST, ZOOKEEPER, Network, broker
from tests.interop.handover import OURS, command_of
from zk.embedded import EmbeddedZooKeeper

ROOT = Path(__file__).resolve().parents[2]
BROKERS = (0, 1, 2)
SESSION_TIMEOUT_S = 4.0
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 45.0
JAVA_STOPPED = 128 + signal.SIGTERM
SMALL_DISK_BYTES = 512 * 1024 * 1024

SETTINGS = {
    "inter.broker.listener.name": "INTERNAL",
    "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "zookeeper.session.timeout.ms": str(int(SESSION_TIMEOUT_S * 1000)),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    # What a broker finds out by waiting, it finds out within a story.
    "replica.lag.time.max.ms": "3000",
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "leader.imbalance.check.interval.seconds": "20",
    "log.retention.ms": "-1",
    "log.segment.bytes": "100000",
    "log.index.size.max.bytes": "65536",
    "log.segment.delete.delay.ms": "1000",
}


@attrs.define(eq=False)
class BrokerProcess:
    """One broker. `is_up`: it has said that it is ready, and nothing has been done to it since."""

    broker_id: int
    directory: Path
    port: int
    client_port: int  # of the network
    process: asyncio.subprocess.Process | None = None
    is_up: bool = False
    is_frozen: bool = False
    is_expected_to_end: bool = False

    @property
    def log_file(self) -> Path:
        """Its output."""
        return self.directory / f"broker-{self.broker_id}.log"

    @property
    def log_dir(self) -> Path:
        """Its partitions."""
        return self.directory / f"broker-{self.broker_id}"

    @property
    def is_serving(self) -> bool:
        """Whether it runs as far as its processes go; its links may be cut."""
        return self.is_up and not self.is_frozen


@attrs.define(eq=False)
class Cluster:
    """Use it as an async context manager: it is ready within, and gone behind."""

    directory: Path
    say: Callable[[str], None]
    settings: Mapping[str, str] = attrs.field(factory=dict)
    """Of all brokers, beside SETTINGS."""
    make: str = OURS
    """OURS, or a release of Kafka."""
    relay: Callable[[int], Awaitable[int]] | None = None
    """Called with the port where a broker takes clients; returns the one that leads there."""
    network: Network = attrs.field(factory=Network)
    brokers: dict[int, BrokerProcess] = attrs.field(factory=dict)
    zookeeper_troubles: int = 0
    """How many faults keep brokers from it now."""
    deaths: list[str] = attrs.field(factory=list)
    """Of processes that nobody has killed."""
    given_up: int = 0
    """Starts of brokers that ended because ZooKeeper was away."""
    small_disk: Path | None = None
    _zookeeper: EmbeddedZooKeeper = attrs.field(init=False)
    _ends: contextlib.AsyncExitStack = attrs.field(factory=contextlib.AsyncExitStack)
    _watching: set[asyncio.Task[None]] = attrs.field(factory=set)

    @property
    def bootstrap(self) -> str:
        """For clients, by the network."""
        return ",".join(f"{HOST}:{each.client_port}" for each in self.brokers.values())

    @property
    def zookeeper(self) -> str:
        """The connect string, past the network."""
        return self._zookeeper.connect_string

    async def __aenter__(self) -> "Cluster":
        self.directory.mkdir(parents=True, exist_ok=True)
        self._zookeeper = EmbeddedZooKeeper(self.directory / "zookeeper")
        try:
            self._ends.push_async_callback(self._end)
            await self._zookeeper.start()
            await self._ends.enter_async_context(self.network)
            ports = iter(claim_ports(0, 2 * len(BROKERS)))  # at once, so that all are different
            for broker_id in BROKERS:
                await self._prepare(broker_id, next(ports), next(ports))
            self._mount_small_disk()
            await asyncio.gather(*(self.start(broker_id) for broker_id in BROKERS))
        except BaseException:
            await self._ends.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    async def _prepare(self, broker_id: int, port: int, internal: int) -> None:
        name = broker(broker_id)
        behind = port if self.relay is None else await self.relay(port)
        for_clients = await self.network.open(name, behind, CLIENTS)
        for_brokers = await self.network.open(name, internal)
        to_zookeeper = await self.network.open(ZOOKEEPER, self._zookeeper.port, name)
        own = {
            "broker.id": broker_id,
            "log.dirs": self.directory / name,
            "listeners": f"CLIENT://{HOST}:{port},INTERNAL://{HOST}:{internal}",
            "advertised.listeners": f"CLIENT://{HOST}:{for_clients},"
            f"INTERNAL://{HOST}:{for_brokers}",
            "zookeeper.connect": f"{HOST}:{to_zookeeper}",
        }
        all_settings = own | SETTINGS | dict(self.settings)
        text = "".join(f"{name}={value}\n" for name, value in all_settings.items())
        (self.directory / f"{name}.properties").write_text(text, "utf-8")
        made = BrokerProcess(broker_id, self.directory, port, for_clients)
        self.brokers[broker_id] = made

    def _mount_small_disk(self) -> None:
        """Give the last broker a disk that can be filled, where that is permitted."""
        disk = self.brokers[BROKERS[-1]].log_dir
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_BYTES}", "chaos", str(disk)]
        with contextlib.suppress(OSError):
            if subprocess.run(command, capture_output=True).returncode == 0:
                self.small_disk = disk

    def _unmount_small_disk(self) -> None:
        """Leave what is on it where it was."""
        if self.small_disk is None:
            return
        kept = self.directory / "kept"
        shutil.copytree(self.small_disk, kept)
        subprocess.run(["umount", str(self.small_disk)], check=True)
        self.small_disk.rmdir()
        kept.rename(self.small_disk)

    async def _end(self) -> None:
        for each in self.brokers.values():
            each.is_expected_to_end = True
            if each.process is not None and each.process.returncode is None:
                each.process.kill()
                await each.process.wait()
        self.thaw_zookeeper()
        await self._zookeeper.stop()
        self._unmount_small_disk()

    # ---- brokers

    async def start(self, broker_id: int) -> None:
        """Return when it serves. While it cannot reach ZooKeeper it is started again and again.

        Raises TimeoutError.
        """
        each = self.brokers[broker_id]
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._start_once(each):
                await asyncio.sleep(0.5)

    async def _start_once(self, each: BrokerProcess) -> bool:
        was_whole = not self.zookeeper_troubles
        began = time.monotonic()
        properties = self.directory / f"broker-{each.broker_id}.properties"
        with each.log_file.open("ab") as log:
            each.process = process = await asyncio.create_subprocess_exec(
                *self._command(properties),
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        each.is_frozen = each.is_expected_to_end = False
        if await self._is_ready(each, process):
            each.is_up = True
            self.say(f"broker {each.broker_id} serves after {time.monotonic() - began:.1f} s")
            task = asyncio.get_running_loop().create_task(self._watch(each, process))
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)
            return True
        code = await process.wait()
        fate = f"broker {each.broker_id} ended with {code} while it started: {last_line(each)}"
        self.say(fate)
        if was_whole and not self.zookeeper_troubles and not each.is_expected_to_end:
            self.deaths.append(fate)
        self.given_up += 1
        return False

    def _command(self, properties: Path) -> list[str]:
        command = command_of(self.make, properties)
        return [*command, "--with-parent"] if self.make == OURS else command

    async def _is_ready(self, each: BrokerProcess, process: asyncio.subprocess.Process) -> bool:
        """Return True when it serves; False when it has ended instead."""
        assert process.stdout is not None
        if self.make == OURS:
            return (await process.stdout.readline()).startswith(b"ready ")

        # What it prints is read, lest it wait for that.
        reading = asyncio.get_running_loop().create_task(_append(process.stdout, each.log_file))
        self._watching.add(reading)
        reading.add_done_callback(self._watching.discard)
        while process.returncode is None:
            with contextlib.suppress(OSError, LoadError):
                if await asyncio.to_thread(is_serving, (HOST, each.port)):
                    return True
            await asyncio.sleep(0.25)
        return False

    async def _watch(self, each: BrokerProcess, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if each.process is process:
            each.is_up = False
            if not each.is_expected_to_end:
                fate = f"broker {each.broker_id} ended by itself with {code}: {last_line(each)}"
                self.say(fate)
                self.deaths.append(fate)

    async def kill(self, *broker_ids: int) -> None:
        """kill -9, all at once."""
        await self._signal(signal.SIGKILL, broker_ids)

    async def terminate(self, broker_id: int) -> bool:
        """SIGTERM; whether it ended by that, in time and well."""
        each = self.brokers[broker_id]
        assert each.process is not None
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await self._signal(signal.SIGTERM, [broker_id])
        except TimeoutError:
            fate = f"broker {broker_id} does not end by SIGTERM within {STOP_TIMEOUT_S:.0f} s"
            self.deaths.append(fate)
            await self.kill(broker_id)
            return False
        code = each.process.returncode
        has_stopped = code == (0 if self.make == OURS else JAVA_STOPPED)
        if not has_stopped:
            self.deaths.append(f"broker {broker_id} ends by SIGTERM with {code}")
        return has_stopped

    async def _signal(
        self, number: signal.Signals, broker_ids: "list[int] | tuple[int, ...]"
    ) -> None:
        hurt = [self.brokers[broker_id] for broker_id in broker_ids]
        for each in hurt:
            each.is_expected_to_end = True
            assert each.process is not None
            with contextlib.suppress(ProcessLookupError):
                each.process.send_signal(number)
        for each in hurt:
            assert each.process is not None
            await each.process.wait()
            each.is_up = False

    @contextlib.asynccontextmanager
    async def frozen(self, broker_id: int) -> AsyncIterator[None]:
        """SIGSTOP, and SIGCONT at the end of the block."""
        each = self.brokers[broker_id]
        assert each.process is not None
        each.process.send_signal(signal.SIGSTOP)
        each.is_frozen = True
        try:
            yield
        finally:
            each.is_frozen = False
            if each.process.returncode is None:
                each.process.send_signal(signal.SIGCONT)

    # ---- ZooKeeper

    @contextlib.asynccontextmanager
    async def zookeeper_away(self, *, killed: bool) -> AsyncIterator[None]:
        """It is stopped, by SIGKILL or SIGSTOP, and goes on at the end of the block."""
        self.zookeeper_troubles += 1
        os.kill(self._zookeeper.pid, signal.SIGKILL if killed else signal.SIGSTOP)
        try:
            yield
        finally:
            if killed:
                await self._zookeeper.stop()
                await self._zookeeper.start()
            else:
                self.thaw_zookeeper()
            self.zookeeper_troubles -= 1

    def thaw_zookeeper(self) -> None:
        """End a SIGSTOP, if there was one."""
        with contextlib.suppress(AssertionError, ProcessLookupError):
            os.kill(self._zookeeper.pid, signal.SIGCONT)


async def _append(output: asyncio.StreamReader, file: Path) -> None:
    while text := await output.read(65536):
        with file.open("ab") as log:
            log.write(text)


def last_line(each: BrokerProcess) -> str:
    """The last thing a broker has written."""
    lines = each.log_file.read_text("utf-8", errors="replace").splitlines()
    return lines[-1] if lines else ""
