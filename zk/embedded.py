"""A real ZooKeeper server as a child process of this one.

The server is the one whose jars PySpark ships (or those of ZOOKEEPER_HOME), run by Java >= 17 in
standalone mode. Its life is tied to ours by a pipe: the shell that becomes Java leaves a guard
behind which reads that pipe. End of file, which the kernel sends however we die, makes the guard
kill its process group, and that group is the server and the guard alone. A line on the pipe means
that the server was stopped in good order, and the guard goes quietly.

The settings are ZooKeeper's (Administrator's Guide): a tick of one second so that session timeouts
from MIN_SESSION_TIMEOUT_MS up are granted as asked, no bound on connections from one address, no
admin server, and the four-letter words `srvr` and `ruok`.
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

TICK_TIME_MS = 1000
MIN_SESSION_TIMEOUT_MS = 1000
MAX_SESSION_TIMEOUT_MS = 300_000
MIN_JAVA = 17
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 20
# Below those that kernels give to outgoing connections, one of which could take the port between
# our probe and the server's start, or while a server is down that is to come back on it.
FREE_PORTS = range(20_000, 32_000)
PORT_ATTEMPTS = 50
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
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JAVA_OPTIONS = (
    "-Xmx256m",
    "-XX:+UseSerialGC",  # it is one small process beside brokers that want the processors
    "-XX:TieredStopAtLevel=1",
    "-Dorg.apache.logging.log4j.level=INFO",
    "-Djava.awt.headless=true",
)
_INSTALL_JAVA = (
    f"install Java {MIN_JAVA} or newer (Debian/Ubuntu: apt install openjdk-17-jre-headless; "
    "macOS: brew install openjdk@17) and set JAVA_HOME or put java on the PATH"
)
_INSTALL_JARS = "pip install 'kgroup[spark]' (PySpark ships its jars), or set ZOOKEEPER_HOME"
# The subshell is the guard. `exec` then makes the shell itself Java, so that Java has the pid the
# parent sees. The explicit redirection keeps the shell from giving the guard /dev/null to read.
_GUARDED = '(read -r _ || kill -KILL 0) <&3 3<&- & exec "$@" </dev/null 3<&-'


class ZkServerError(Exception):
    """The server cannot be found, started, or kept running; the message says what to do."""


def find_java() -> Path:
    """The `java` of JAVA_HOME, else of the PATH, that is new enough (runs `java -version`).

    Raises ZkServerError, naming what was found, when neither is.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(home, "bin", "java")] if home else []
    candidates += [Path(on_path)] if on_path else []
    found = {java: _java_version(java) for java in candidates}
    for java, version in found.items():
        if version >= MIN_JAVA:
            return java
    seen = "; ".join(f"{java} is {f'Java {v}' if v else 'no Java'}" for java, v in found.items())
    raise ZkServerError(f"ZooKeeper needs Java: {seen or 'none was found'}; {_INSTALL_JAVA}")


def _java_version(java: Path) -> int:
    """The feature release (8, 17, …); 0 when it is no Java that runs (macOS has such a stub)."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', ran.stderr + ran.stdout)
    return int(match[1]) if match and ran.returncode == 0 else 0


def find_jars() -> list[Path]:
    """What the server's class path needs, from ZOOKEEPER_HOME if set, else from PySpark.

    Raises ZkServerError when there is no ZooKeeper jar.
    """
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        jars = [jar for folder in ("", "lib") for jar in sorted(Path(home, folder).glob("*.jar"))]
    else:
        spark = importlib.util.find_spec("pyspark")
        folders = spark.submodule_search_locations if spark else None
        jars = [jar for f in folders or () for p in _JARS for jar in Path(f, "jars").glob(p)]
    if not any(jar.name.startswith("zookeeper-") for jar in jars):
        where = f"in ZOOKEEPER_HOME={home}" if home else "with PySpark"
        raise ZkServerError(f"no ZooKeeper jar {where}: {_INSTALL_JARS}")
    return jars


@attrs.define(eq=False)
class EmbeddedZooKeeper:
    """One standalone server: `async with EmbeddedZooKeeper(data_dir) as zk: zk.connect_string`.

    `data_dir` is made if missing, and holds ZooKeeper's data, `zoo.cfg` and `zookeeper.log`; a
    later server on the same directory continues with the data. Port 0 is any free one. `settings`
    are added to those of `zoo.cfg`; `class_path` is that of another release of ZooKeeper.
    """

    data_dir: Path
    port: int = 0
    host: str = "127.0.0.1"
    stop_timeout_s: float = STOP_TIMEOUT_S
    settings: Mapping[str, str] = attrs.field(factory=dict)
    class_path: Sequence[Path] = ()
    _process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)
    _lifeline: BinaryIO | None = attrs.field(default=None, init=False)

    @property
    def pid(self) -> int:
        """Java's own process id; only while the server runs."""
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
        """Return when the server answers. Raises ZkServerError with the log's last lines if not."""
        assert self._process is None
        java = await asyncio.to_thread(find_java)
        class_path = self.class_path or _class_path()
        self.port = _claim_port(self.host, self.port)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        config = self.data_dir / "zoo.cfg"
        config.write_text(self._config())
        self._spawn(
            [str(java), *_JAVA_OPTIONS, "-cp", _joined(class_path), _MAIN, str(config.resolve())]
        )
        try:
            await self._until_serving()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the server: SIGTERM, and SIGKILL if that takes `stop_timeout_s`. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, self.stop_timeout_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            self._dismiss_guard()

    def _config(self) -> str:
        settings = {
            "dataDir": str(self.data_dir.resolve()),
            "clientPort": self.port,
            "clientPortAddress": self.host,
            "tickTime": TICK_TIME_MS,
            "minSessionTimeout": MIN_SESSION_TIMEOUT_MS,
            "maxSessionTimeout": MAX_SESSION_TIMEOUT_MS,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok",
            "autopurge.purgeInterval": 1,
            **self.settings,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def _spawn(self, command: list[str]) -> None:
        reader, writer = os.pipe()
        self._lifeline = os.fdopen(writer, "wb", buffering=0)
        try:
            with self.log_file.open("ab") as log:
                # A session of its own: Ctrl-C on our terminal must not take the server from under
                # brokers that still have to say goodbye to it, and `kill 0` must reach no one else.
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", f"exec 3<&0; {_GUARDED}", "zookeeper", *command],
                    stdin=reader,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        finally:
            os.close(reader)

    def _dismiss_guard(self) -> None:
        lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            with contextlib.suppress(BrokenPipeError), lifeline:
                lifeline.write(b"stopped\n")

    async def _until_serving(self) -> None:
        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while not await self._serving():
            if self._process.poll() is not None:
                raise self._failure(f"exited with status {self._process.returncode}")
            if asyncio.get_running_loop().time() > deadline:
                raise self._failure(f"does not serve after {START_TIMEOUT_S:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def _serving(self) -> bool:
        """Whether `srvr` is answered with statistics, which a server still loading refuses."""
        try:
            async with asyncio.timeout(_PROBE_TIMEOUT_S):
                reader, writer = await asyncio.open_connection(self.host, self.port)
                with contextlib.closing(writer):
                    writer.write(b"srvr")
                    return (await reader.read()).startswith(b"Zookeeper version")
        except OSError:  # TimeoutError is one
            return False

    def _failure(self, what: str) -> ZkServerError:
        lines = self.log_file.read_text(errors="replace").splitlines()
        told = [line for line in lines if not line.startswith("\tat ")]  # no stack traces
        tail = "".join(f"\n  {line}" for line in told[-LOG_TAIL_LINES:])
        return ZkServerError(
            f"ZooKeeper at {self.connect_string} {what}; {self.log_file} ends:{tail}"
        )


def _class_path() -> list[Path]:
    home = os.environ.get("ZOOKEEPER_HOME")
    return [*find_jars(), *([Path(home, "conf")] if home else [])]  # its logging configuration


def _joined(class_path: Sequence[Path]) -> str:
    return os.pathsep.join(map(str, class_path))


def _claim_port(host: str, port: int) -> int:
    """`port`, or with 0 any, if ZooKeeper will be able to bind it; raises ZkServerError.

    Asked beforehand, because the answer to our probe would otherwise come from whoever has it.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in [port] if port else random.sample(FREE_PORTS, PORT_ATTEMPTS):
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, candidate))
            except OSError as error:
                refusal = error
            else:
                return candidate
    raise ZkServerError(f"ZooKeeper cannot listen on {host}:{port}: {refusal}")
