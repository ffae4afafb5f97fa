"""A local cluster is one ZooKeeper and N broker processes, all children of this process.

    DIR/zookeeper/            data of the embedded ZooKeeper
    DIR/broker-N.properties   settings of broker N; `kbroker start` starts it again
    DIR/broker-N.pid          its process id, while it runs
    DIR/broker-N.log          its output
    DIR/broker-N/             its partitions
    DIR/secure/               certificates, users and settings of clients, where it is secured

A child has a session of its own: Ctrl-C reaches this process alone, and the brokers can still close
their ZooKeeper sessions. A child watches its standard input, so that it ends when its parent does.
"""

import asyncio
import contextlib
import fcntl
import os
import random
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs

from broker.kbroker.broker_process import describe_end, start_broker, stop_brokers
from broker.kbroker.security_folder import LISTENER, SecurityFolder
from broker.settings.one_of_many import METRICS_PORT
from clients.errors import ClientError
from clients.transport.connection import Connection
from clients.transport.login import Login
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.port_holder import explain_refusal
from protocol.private_file import write_private
from protocol.settings import format_properties
from zk.embedded import FREE_PORTS, EmbeddedZooKeeper

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
_POLL_S = 0.05
_PROBE_TIMEOUT_MS = 2000
_ZOOKEEPER_TIMEOUT_MS = 10_000

MOST_REPLICAS = 3
"""Replicas of coordinators' topics, as in Kafka; fewer if there are fewer brokers."""
LEAST_IN_SYNC = 2
"""Replicas in sync that the state of a transaction needs, as in Kafka; fewer likewise."""
DEV_SETTINGS = {
    # A group's first member gets its partitions at once.
    "group.initial.rebalance.delay.ms": "0",
    # Kafka waits 5 s before a broker tries again to move its leaders away.
    "controlled.shutdown.retry.backoff.ms": "1000",
    # A broker that is killed is missed as soon as it was before 2.5.
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
}
"""Settings in which a development cluster differs from Kafka's defaults."""


class LocalClusterError(Exception):
    """The cluster cannot be started; the message says which part and why."""


def broker_properties(
    broker_id: int,
    port: int,
    log_dir: Path,
    zookeeper: str,
    brokers: int,
    overrides: Mapping[str, str],
    security: SecurityFolder | None = None,
) -> dict[str, str]:
    """Return the settings of one of `brokers` brokers; `overrides` win."""
    return {
        "broker.id": str(broker_id),
        "listeners": f"{'PLAINTEXT' if security is None else LISTENER}://{HOST}:{port}",
        "log.dirs": str(log_dir),
        "zookeeper.connect": zookeeper,
        "offsets.topic.replication.factor": str(min(brokers, MOST_REPLICAS)),
        "transaction.state.log.replication.factor": str(min(brokers, MOST_REPLICAS)),
        "transaction.state.log.min.isr": str(min(brokers, LEAST_IN_SYNC)),
        **DEV_SETTINGS,
        **({} if security is None else security.broker_settings(broker_id)),
        **overrides,
    }


@attrs.define(eq=False)
class BrokerProcess:
    """A broker that runs as a child process."""

    broker_id: int
    port: int
    directory: Path
    process: asyncio.subprocess.Process

    @property
    def log_file(self) -> Path:
        """The file of its output and standard error."""
        return self.directory / f"broker-{self.broker_id}.log"

    @property
    def pid_file(self) -> Path:
        """The file of its process id, for scripts that kill it."""
        return self.directory / f"broker-{self.broker_id}.pid"

    def describe_end(self) -> str:
        """Say how the process ended, with its last line of output unless somebody stopped it."""
        code = self.process.returncode
        assert code is not None

        # Somebody killed or stopped it: its last line of output says nothing about that.
        end = describe_end(f"broker {self.broker_id}", code)
        if code in (0, -signal.SIGKILL, -signal.SIGTERM):
            return end

        # A crash, or an error: its last line of output may name the reason.
        lines = self.log_file.read_text("utf-8", errors="replace").splitlines()
        return end + (f": {lines[-1].strip()}" if lines else "")


@attrs.define(eq=False)
class LocalCluster:
    """The processes of one directory. Call `start`, then `watch`, and always `stop`."""

    directory: Path
    brokers: int
    port: int
    """The port of broker 0, the others take the next ones; 0: any free ports."""
    zookeeper_port: int
    external_zookeeper: str | None
    """The connect string of a running ZooKeeper; None starts an embedded one."""
    overrides: Mapping[str, str]
    metrics_port: int | None = None
    """The port of broker 0 for Prometheus, as `port`; None: there are none."""
    is_secure: bool = False
    """Whether clients log in over TLS, and ACLs decide what they may do."""
    security: SecurityFolder | None = attrs.field(default=None, init=False)
    metrics_urls: list[str] = attrs.field(factory=list, init=False)
    _embedded: EmbeddedZooKeeper | None = attrs.field(default=None, init=False)
    _children: list[BrokerProcess] = attrs.field(factory=list, init=False)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"{HOST}:{child.port}" for child in self._children)

    @property
    def zookeeper(self) -> str:
        """The connect string."""
        if self._embedded is not None:
            return self._embedded.connect_string
        assert self.external_zookeeper is not None
        return self.external_zookeeper

    async def start(self) -> None:
        """Start all processes; return when every broker knows all others and the controller.

        Raises LocalClusterError, SecurityUnavailable, ZkServerError, ZkError.
        """
        assert not self._children, "a cluster starts once"
        self.security = self._open_security()

        # ZooKeeper first: its address is in the brokers' settings.
        if self.external_zookeeper is None:
            self._embedded = EmbeddedZooKeeper(
                self.directory / "zookeeper",
                self.zookeeper_port,
                users={} if self.security is None else self.security.zookeeper_users,
            )
            await self._embedded.start()
            (self.directory / "zookeeper.pid").write_text(f"{self._embedded.pid}\n")
        if self.security is not None:
            await self._secure_zookeeper(self.security)

        # All brokers start side by side, and find each other in ZooKeeper.
        for broker_id, (port, metrics_port) in enumerate(self._claim_ports()):
            settings = dict(self.overrides)
            if metrics_port:
                settings[METRICS_PORT] = str(metrics_port)
                self.metrics_urls.append(f"http://{HOST}:{metrics_port}/metrics")
            self._children.append(await self._spawn(broker_id, port, settings))
        if self.security is not None:
            self.security.write_client_settings(self.bootstrap)

        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._await_ready()
        except TimeoutError:
            raise LocalClusterError(
                f"the brokers are not ready after {START_TIMEOUT_S:.0f} s; "
                f"see {self.directory}/broker-*.log"
            ) from None

    async def watch(self, report: Callable[[str], None]) -> None:
        """Report each process that ends and how to start it again; return when all have ended."""

        async def report_zookeeper(server: EmbeddedZooKeeper) -> None:
            end = describe_end("ZooKeeper", await server.wait())
            again = f"kbroker zookeeper --port {server.port} --data {server.data_dir}"
            if self.security is not None:
                # Its users are known here alone.
                again = f"stop all, then kbroker dev --secure --data {self.directory}"
            report(f"{end}; to start it again: {again}")

        async def report_end(child: BrokerProcess) -> None:
            await child.process.wait()
            properties = self.directory / f"broker-{child.broker_id}.properties"
            report(f"{child.describe_end()}; to start it again: kbroker start {properties}")

        # A process that ends does not end the watch over the others.
        async with asyncio.TaskGroup() as tasks:
            if self._embedded is not None:
                tasks.create_task(report_zookeeper(self._embedded))
            for child in self._children:
                tasks.create_task(report_end(child))

    async def stop(self) -> None:
        """Stop the brokers, then ZooKeeper."""
        await stop_brokers(child.process for child in self._children)

        # ZooKeeper last: the brokers close their sessions in it.
        if self._embedded is not None:
            await self._embedded.stop()

        # A script must not kill a process that gets one of these ids later. A broker that somebody
        # started again by hand lives on, and so does its file.
        for file in self.directory.glob("*.pid"):
            if not _has_living(file):
                file.unlink()

    def _open_security(self) -> SecurityFolder | None:
        """Make, or use again, what secures the cluster; None for one that is not secured."""
        folder = self.directory / "secure"
        if self.is_secure:
            assert self.external_zookeeper is None, "only our own knows the brokers' login"
            security = SecurityFolder.open(folder, self.brokers)
            # ZooKeeper's files have the users' keys, by which passwords can be guessed.
            for name in ("zookeeper", *(f"broker-{number}" for number in range(self.brokers))):
                make_private(self.directory / name)
            return security

        # ZooKeeper would refuse brokers that do not log in.
        if folder.exists():
            raise LocalClusterError(
                f"{self.directory} has a secured cluster: start it with --secure, or name another "
                "directory by --data"
            )
        return None

    async def _secure_zookeeper(self, security: SecurityFolder) -> None:
        """Let the brokers alone write to ZooKeeper, and give the users their passwords."""
        # A cluster without security starts without all of this.
        from broker.kbroker.over_zookeeper import OverZooKeeper
        from zk.acl_change import change_acls
        from zk.session import KazooSession

        session = KazooSession(self.zookeeper, login=security.zookeeper_login)
        await session.start()
        try:
            # What an earlier start without --secure has made is open.
            async for _ in change_acls(session, secure=True):
                pass
            verdicts = await OverZooKeeper(session, _ZOOKEEPER_TIMEOUT_MS).change_users(
                security.credentials
            )
        finally:
            await session.close()
        for user, error in verdicts.items():
            if error is not None:
                raise LocalClusterError(f"user {user} cannot be created: {error}")

    def _claim_ports(self) -> list[tuple[int, int]]:
        """Return the port of each broker, and that of its figures, 0 for none."""
        if self.metrics_port is None:
            return [(port, 0) for port in claim_ports(self.port, self.brokers)]
        # Any free ones are claimed together, so that all are different.
        if self.port == self.metrics_port == 0:
            ports = claim_ports(0, 2 * self.brokers)
            return list(zip(ports[::2], ports[1::2], strict=True))
        return list(
            zip(
                claim_ports(self.port, self.brokers),
                claim_ports(self.metrics_port, self.brokers),
                strict=True,
            )
        )

    async def _spawn(
        self, broker_id: int, port: int, overrides: Mapping[str, str]
    ) -> BrokerProcess:
        # The settings stay in a file: `kbroker start` can start this broker alone.
        properties = self.directory / f"broker-{broker_id}.properties"
        log_dir = self.directory / f"broker-{broker_id}"
        settings = broker_properties(
            broker_id, port, log_dir, self.zookeeper, self.brokers, overrides, self.security
        )
        write_private(properties, format_properties(settings))  # with passwords, maybe

        # A later run appends to the same log.
        with (self.directory / f"broker-{broker_id}.log").open("ab") as log:
            process = await start_broker([str(properties)], stdout=log, stderr=log)

        child = BrokerProcess(broker_id, port, self.directory, process)
        child.pid_file.write_text(f"{process.pid}\n")
        return child

    async def _await_ready(self) -> None:
        ids = set(range(self.brokers))
        tls = None if self.security is None else self.security.client_tls()
        login = None if self.security is None else self.security.admin_login

        # One broker after the other: all must see the whole cluster.
        for child in self._children:
            while not await has_metadata_of(child.port, ids, tls, login):
                # A broker that has ended would be waited for in vain.
                for broker in self._children:
                    if broker.process.returncode is not None:
                        raise LocalClusterError(broker.describe_end())
                await asyncio.sleep(_POLL_S)


def make_private(directory: Path) -> None:
    """Make a directory, or one that is there, the user's alone."""
    directory.mkdir(mode=0o700, exist_ok=True)
    # An earlier start may have made it for all to read (fault security-13).
    directory.chmod(0o700)


def _has_living(pid_file: Path) -> bool:
    """Return whether there is a process with the id in a file."""
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        pass
    return True


async def has_metadata_of(
    port: int,
    broker_ids: set[int],
    tls: ssl.SSLContext | None = None,
    login: Login | None = None,
) -> bool:
    """True if the broker at `port` reports these brokers as live, and one as controller."""
    try:
        connection = await Connection.open(
            HOST, port, request_timeout_ms=_PROBE_TIMEOUT_MS, tls=tls, login=login
        )
        try:
            # An empty list is no topic: brokers and controller are all we want to know.
            metadata: MetadataResponse = await connection.call(MetadataRequest(topics=[]))
        finally:
            await connection.close()
    except ClientError:
        # It does not listen yet, or does not respond.
        return False

    live = {broker.node_id for broker in metadata.brokers}
    return live >= broker_ids and metadata.controller_id in live


def claim_ports(first: int, count: int) -> list[int]:
    """Return `count` ports from `first` on, or, if `first` is 0, free ports, all different.

    Raises LocalClusterError for a port that is taken.
    """
    # Free ports are tried in random order: clusters that start together seldom collide.
    candidates = range(first, first + count)
    ports: list[int] = []

    for port in candidates if first else random.sample(FREE_PORTS, len(FREE_PORTS)):
        with socket.socket() as probe:
            # As the broker's own socket: connections of an earlier broker do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                if first:
                    reason = explain_refusal(error, port)
                    raise LocalClusterError(f"cannot listen on {HOST}:{port}: {reason}") from None
                continue

        ports.append(port)
        if len(ports) == count:
            return ports

    raise LocalClusterError(f"there are no {count} free ports in {FREE_PORTS}")


@contextlib.contextmanager
def hold_directory(directory: Path) -> Iterator[None]:
    """Create the directory and lock it, so that no second cluster runs on the same data.

    Raises LocalClusterError when another process holds it.
    """
    directory.mkdir(parents=True, exist_ok=True)

    # The kernel releases the lock however this process ends; the file stays.
    with (directory / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LocalClusterError(f"{directory} is in use by another kbroker dev") from None
        yield
