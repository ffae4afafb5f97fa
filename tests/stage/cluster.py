"""A whole cluster as a user starts it: `kbroker dev` as a process, and commands on it."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Self

import attrs
import pytest

from tests.stage.waiting import DEADLINE_S, block_until
from zk.embedded import ZkServerError, find_jars, find_java
from zk.session import KazooSession

ROOT = Path(__file__).resolve().parents[2]

_COMMANDS = {
    "kgroup": "from clients.kgroup.command import main; main(prog_name='kgroup')",
    "kbroker": "from broker.kbroker.command import main; main(prog_name='kbroker')",
}


def command_line(program: str, *args: str) -> list[str]:
    """`kgroup …` or `kbroker …`, without needing them installed."""
    return [sys.executable, "-c", _COMMANDS[program], *args]


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Have a process do nothing until the end of the block: connections to it stay, and hang."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def lives(pid: int) -> bool:
    """Whether there is such a process that is not a zombie."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # before, or while it is read
        return False


def first_line(process: subprocess.Popen[str], deadline_s: float = DEADLINE_S) -> str:
    """The first line of its standard output; "" when it ends without one."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], deadline_s)
    assert ready, f"no line within {deadline_s:.0f} s"
    return process.stdout.readline()


@contextlib.asynccontextmanager
async def zookeeper_session(
    connect_string: str, *, create_chroot: bool = False
) -> AsyncIterator[KazooSession]:
    """A session for the block."""
    session = KazooSession(connect_string, create_chroot=create_chroot)
    await session.start()
    try:
        yield session
    finally:
        await session.close()


@attrs.define(eq=False)
class DevCluster:
    """`kbroker dev` on a directory. Use it as a context manager; `ready` is its one line."""

    directory: Path
    args: tuple[str, ...] = ()
    process: subprocess.Popen[str] = attrs.field(init=False)
    ready: str = attrs.field(default="", init=False)

    def __enter__(self) -> Self:
        try:
            find_java(), find_jars()
        except ZkServerError as error:
            pytest.skip(f"missing tool: {error}")
        command = command_line(
            *("kbroker", "dev", "--port", "0", "--zookeeper-port", "0"),
            *("--data", str(self.directory)),
            *("--set", "log.retention.ms=-1"),  # tests write records of long ago
        )
        self.process = subprocess.Popen(
            [*command, *self.args],
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            self.ready = first_line(self.process)
            assert self.ready.startswith("ready "), self.process.communicate()[1]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=DEADLINE_S)

    def address(self, name: str) -> str:
        """`bootstrap` or `zookeeper` of the ready line."""
        return dict(word.split("=", 1) for word in self.ready.split()[1:])[name]

    def pid(self, name: str) -> int:
        """Of `broker-N` or `zookeeper`."""
        return int((self.directory / f"{name}.pid").read_text())

    @property
    def env(self) -> dict[str, str]:
        """The environment in which commands find this cluster."""
        return {
            **os.environ,
            "KGROUP_BOOTSTRAP_SERVER": self.address("bootstrap"),
            "KGROUP_ZOOKEEPER": self.address("zookeeper"),
        }

    def run(
        self, program: str, *args: str, stdin: str = "", deadline_s: float = DEADLINE_S
    ) -> subprocess.CompletedProcess[str]:
        """A command on this cluster, to its end."""
        return subprocess.run(
            command_line(program, *args),
            cwd=ROOT,
            env=self.env,
            input=stdin,
            text=True,
            capture_output=True,
            timeout=deadline_s,
        )

    def begin(self, program: str, *args: str) -> subprocess.Popen[str]:
        """A command on this cluster that goes on; the caller ends it."""
        return subprocess.Popen(
            command_line(program, *args),
            cwd=ROOT,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def log(self, broker_id: int = 0) -> str:
        """What a broker has written of itself so far."""
        return (self.directory / f"broker-{broker_id}.log").read_text()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End `broker-N` or `zookeeper` by a signal, and return when the process is gone."""
        pid = self.pid(name)
        os.kill(pid, number)
        block_until(lambda: not lives(pid), f"the end of {name}")

    @contextlib.contextmanager
    def started_again(self, broker_id: int = 0) -> Iterator[subprocess.Popen[str]]:
        """A broker that was killed, started by hand until the block ends; its log goes on."""
        properties = self.directory / f"broker-{broker_id}.properties"
        with (self.directory / f"broker-{broker_id}.log").open("a") as log:
            process = subprocess.Popen(
                command_line("kbroker", "start", str(properties)),
                cwd=ROOT,
                text=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            assert first_line(process).startswith("ready ")
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=DEADLINE_S)

    def zookeeper_session(self) -> contextlib.AbstractAsyncContextManager[KazooSession]:
        """A session with this cluster's ZooKeeper, for the block."""
        return zookeeper_session(self.address("zookeeper"))
