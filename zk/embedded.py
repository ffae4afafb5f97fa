"""A real ZooKeeper server as a child process of this one.

Its jars are those that PySpark ships, or those in ZOOKEEPER_HOME. Java >= 17 runs it in standalone
mode.

The server ends with our process, by means of a pipe. The shell that becomes Java leaves a guard
behind, which reads the pipe. However we die, the kernel then sends end of file, and the guard kills
its process group: the server and the guard alone. A line on the pipe means that we have stopped the
server in good order, and the guard just ends.

The settings are from ZooKeeper's Administrator's Guide. A tick of one second makes the server grant
session timeouts from MIN_SESSION_TIMEOUT_MS up as requested. There is no bound on connections from
one address and no admin server, and the four-letter words are `srvr`, `ruok` and `conf`.

Java runs in the data directory and is told relative paths, since its configuration file cannot hold
every name that a directory may have.
"""

import asyncio
import contextlib
import importlib.util
import os
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Self

import attrs

from protocol.port_holder import explain_refusal
from protocol.private_file import write_private
from protocol.sasl.jaas import quote_value

TICK_TIME_MS = 1000
MIN_SESSION_TIMEOUT_MS = 1000
MAX_SESSION_TIMEOUT_MS = 300_000
MIN_JAVA = 17
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 20
# Below the ports that kernels give to outgoing connections. Such a connection could take the port
# between our probe and the server's start, or while a server restarts.
FREE_PORTS = range(20_000, 32_000)
PORT_ATTEMPTS = 50
START_ATTEMPTS = 5
_POLL_S = 0.05
_PROBE_TIMEOUT_S = 2.0

_JARS = (
    "zookeeper-*.jar",
    "slf4j-api-*.jar",
    "log4j-api-*.jar",
    "log4j-core-*.jar",
    "log4j-slf4j2-impl-*.jar",
    "metrics-core-*.jar",
    "snappy-java-*.jar",
    "netty-*.jar",  # for logins and TLS alone
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",  # a small process, beside brokers that need the processors
    "-XX:TieredStopAtLevel=1",
    "-Dorg.apache.logging.log4j.level=INFO",
    "-Djava.awt.headless=true",
)
_SASL_PROVIDER = "authProvider.sasl"
_SASL_CLASS = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
_INSTALL_JAVA = (
    f"install Java {MIN_JAVA} or newer (Debian: apt install default-jre-headless; Ubuntu: "
    "apt install openjdk-17-jre-headless; macOS: brew install openjdk@17) and set "
    "JAVA_HOME or put java on the PATH"
)
_INSTALL_JARS = (
    "pip install 'kgroup[spark]', or set ZOOKEEPER_HOME to a release of ZooKeeper (`kbroker dev "
    "--zookeeper` takes a server that runs already)"
)
# The subshell is the guard. `exec` then turns the shell itself into Java, so that Java has the pid
# that we know. Without the explicit redirection the shell would give the guard /dev/null to read.
_GUARDED = '(read -r _ || kill -KILL 0) <&3 3<&- & exec "$@" </dev/null 3<&-'


class ZkServerError(Exception):
    """The server cannot be found, started, or kept running; the message says what to do."""


def find_java() -> Path:
    """Find a `java` that is new enough, in JAVA_HOME, else on the PATH. Runs `java -version`.

    Raises ZkServerError, which lists the versions found, if there is none.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(home, "bin", "java")] if home else []
    candidates += [Path(on_path)] if on_path else []

    versions = {java: _java_version(java) for java in candidates}
    for java, version in versions.items():
        if version >= MIN_JAVA:
            return java

    tried = [
        f"{java} is {f'Java {version}' if version else 'no Java'}"
        for java, version in versions.items()
    ]
    raise ZkServerError(
        f"ZooKeeper needs Java: {'; '.join(tried) or 'none was found'}; {_INSTALL_JAVA}"
    )


def _java_version(java: Path) -> int:
    """Return the feature release (8, 17, …); 0 for a file that runs no Java, as macOS's stub."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0

    # Java prints its version to stderr; up to Java 8 it begins with 1 (1.8).
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    if match is None or ran.returncode != 0:
        return 0
    return int(match[1])


def find_jars() -> list[Path]:
    """Find the jars of the server, in ZOOKEEPER_HOME if it is set, else in PySpark.

    Raises ZkServerError if there is no ZooKeeper jar among them.
    """
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        # Releases up to 3.4 have their own jar beside `lib`.
        jars = [jar for folder in ("", "lib") for jar in sorted(Path(home, folder).glob("*.jar"))]
    else:
        spark = importlib.util.find_spec("pyspark")
        folders = spark.submodule_search_locations if spark else None
        jars = [
            jar
            for folder in folders or ()
            for pattern in _JARS
            for jar in Path(folder, "jars").glob(pattern)
        ]

    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        if home:
            raise ZkServerError(f"no ZooKeeper jar in ZOOKEEPER_HOME={home}: {_INSTALL_JARS}")
        raise ZkServerError(
            "the embedded ZooKeeper needs jars that PySpark ships, and there are none: "
            f"{_INSTALL_JARS}"
        )
    return jars


@attrs.define(eq=False)
class EmbeddedZooKeeper:
    """A standalone server: `async with EmbeddedZooKeeper(data_dir) as zk: zk.connect_string`.

    `data_dir` is created if missing. It holds ZooKeeper's data, `zoo.cfg` and `zookeeper.log`; a
    later server on the same directory continues with the data. Port 0 stands for any free port.
    `settings` are added to those in `zoo.cfg`. `class_path` selects another release of ZooKeeper.
    `users`, with their passwords, may log in by SASL DIGEST-MD5.
    """

    data_dir: Path
    port: int = 0
    host: str = "127.0.0.1"
    stop_timeout_s: float = STOP_TIMEOUT_S
    settings: Mapping[str, str] = attrs.field(factory=dict)
    class_path: Sequence[Path] = ()
    users: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)
    _lifeline: BinaryIO | None = attrs.field(default=None, init=False)

    @property
    def pid(self) -> int:
        """Java's own process id. The server must be running."""
        assert self._process is not None
        return self._process.pid

    @property
    def connect_string(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.data_dir / "zookeeper.log"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server and wait until it serves.

        Raises ZkServerError, which ends with the last lines of the server's log.
        """
        assert self._process is None
        wanted_port = self.port

        for attempts_left in reversed(range(START_ATTEMPTS)):
            self.port = find_port(self.host, wanted_port)
            try:
                await self._start_at_port()
                break
            except ZkServerError as error:
                # Between our look and its start, another process has taken the port.
                if wanted_port or not attempts_left or "BindException" not in str(error):
                    raise

    async def _start_at_port(self) -> None:
        self._spawn(self._prepare(await asyncio.to_thread(find_java)))
        try:
            await self._wait_until_serving()
        except BaseException:
            # Also when the caller is cancelled: leave no server behind.
            await self.stop()
            raise

    async def wait(self) -> int:
        """Wait for the end of the server, which must be running; return its exit code."""
        assert self._process is not None
        return await asyncio.to_thread(self._process.wait)

    async def fail_at_its_end(self) -> None:
        """Wait until the server ends, and raise ZkServerError with the last lines of its log."""
        raise self._failure(f"ended with status {await self.wait()}")

    async def stop(self) -> None:
        """End the server: SIGTERM, and SIGKILL after `stop_timeout_s`. Idempotent."""
        # A second call finds nothing to stop.
        process, self._process = self._process, None
        if process is None:
            return

        process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, self.stop_timeout_s)
        finally:
            # The server ends also when the caller is cancelled during the wait.
            if process.poll() is None:
                process.kill()
                process.wait()
            self._dismiss_guard()

    def _prepare(self, java: Path) -> list[str]:
        """Write the files that the server needs; return the command that starts it."""
        class_path = self.class_path or _class_path()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / "zoo.cfg").write_text(self._config())

        joined_path = os.pathsep.join(map(os.path.abspath, class_path))
        options = [*_JAVA_OPTIONS, *self._login_options(), "-cp", joined_path]
        return [os.path.abspath(java), *options, _MAIN, "./zoo.cfg"]

    def _config(self) -> str:
        settings = {
            "dataDir": "./.",  # of less than two characters it takes none
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": TICK_TIME_MS,
            "minSessionTimeout": MIN_SESSION_TIMEOUT_MS,
            "maxSessionTimeout": MAX_SESSION_TIMEOUT_MS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,conf",
            # In hours: old snapshots and transaction logs are deleted.
            "autopurge.purgeInterval": 1,
            **({_SASL_PROVIDER: _SASL_CLASS} if self.users else {}),
            **self.settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _login_options(self) -> list[str]:
        """Write the users' file, which only we may read; return Java's option that names it."""
        if not self.users:
            return []
        entries = "\n".join(
            f"  user_{name}={quote_value(password)}" for name, password in self.users.items()
        )
        path = self.data_dir / "jaas.conf"
        write_private(path, f"Server {{\n  {_DIGEST_MODULE} required\n{entries};\n}};\n")
        return [f"-Djava.security.auth.login.config={path.name}"]

    def _spawn(self, command: list[str]) -> None:
        """Start Java and its guard, which reads from a new pipe."""
        reader, writer = os.pipe()
        self._lifeline = os.fdopen(writer, "wb", buffering=0)

        try:
            with self.log_file.open("ab") as log:
                # The new session keeps Ctrl-C on our terminal from ending the server before the
                # brokers, which deregister from it, and makes `kill 0` reach this group only.
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec 3<&0; {_GUARDED}", "zookeeper", *command],
                    stdin=reader,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.data_dir,
                    # Java opens and prints the directory's name, whatever is in it.
                    env=os.environ | {"LC_ALL": "C.UTF-8"},
                    start_new_session=True,
                )
        finally:
            # The guard has a copy of this end; ours would stay open for nothing.
            os.close(reader)

    def _dismiss_guard(self) -> None:
        """End the guard: a line on the pipe tells it that the server has been stopped."""
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            with contextlib.suppress(BrokenPipeError), lifeline:
                lifeline.write(b"stopped\n")

    async def _wait_until_serving(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + START_TIMEOUT_S

        while not await self._is_serving():
            if self._process.poll() is not None:
                raise self._failure(f"exited with status {self._process.returncode}")
            if loop.time() > deadline_s:
                raise self._failure(f"does not serve after {START_TIMEOUT_S:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def _is_serving(self) -> bool:
        """Return whether `conf` names our directory. A server that is still loading names none.

        One that names another directory has taken our port, and ours is about to fail.
        """
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                with contextlib.closing(writer):
                    writer.write(b"conf")
                    response = (await reader.read()).decode(errors="replace")
            return self._is_ours(response)
        except OSError:  # also TimeoutError
            return False

    def _is_ours(self, response: str) -> bool:
        """Return whether a response to `conf` is our server's. Raises OSError if it has no data."""
        named = re.search("^dataDir=(.*?/version-2)$", response, re.DOTALL | re.MULTILINE)
        return named is not None and os.path.samefile(named[1], self.data_dir / "version-2")

    def _failure(self, symptom: str) -> ZkServerError:
        """Return an error with the last lines of the server's log, without stack traces."""
        lines = self.log_file.read_text(errors="replace").splitlines()
        messages = [line for line in lines if not line.startswith("\tat ")]
        tail = "".join(f"\n  {line}" for line in messages[-LOG_TAIL_LINES:])
        return ZkServerError(
            f"ZooKeeper at {self.connect_string} {symptom}; {self.log_file} ends:{tail}"
        )


def _class_path() -> list[Path]:
    home = os.environ.get("ZOOKEEPER_HOME")
    logging_config = [Path(home, "conf")] if home else []
    return [*find_jars(), *logging_config]


def find_port(host: str, port: int) -> int:
    """Return `port`, or with 0 any port, that ZooKeeper can bind. Raises ZkServerError.

    We look before the start: with the port taken, another server would answer our probe.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if port else random.sample(FREE_PORTS, PORT_ATTEMPTS):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            # As Java's server socket: connections of an earlier server do not block the port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError as error:
                refusal = error
            else:
                return candidate
    reason = explain_refusal(refusal, port)
    raise ZkServerError(f"ZooKeeper cannot listen on {host}:{port}: {reason}")
