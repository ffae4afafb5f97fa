"""A whole cluster as a user starts it: `kbroker dev` as a process, and commands on it."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import attrs
import pytest

from clients import blocking
from clients.admin import NewTopic
from tests.stage.processes import ROOT, command_line, first_line, lives
from tests.stage.waiting import DEADLINE_S, block_until
from tests.stage.zookeeper import zookeeper_session
from zk.embedded import ZkServerError, find_jars, find_java
from zk.session import KazooSession
from zk.znodes import ConsumerGroup


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

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic of one replica; much sooner than a command would."""
        with blocking.Admin(self.address("bootstrap")) as admin:
            assert admin.create_topics([NewTopic(name, partitions, 1)]) == {name: None}

    def wait_for_brokers(self, broker_ids: set[int]) -> None:
        """Return when the brokers that are registered are these."""

        def registered() -> set[int]:
            shown = self.run("kbroker", "cluster", "describe", "-o", "json")
            items = json.loads(shown.stdout)["items"] if shown.returncode == 0 else []
            return {broker["broker"] for item in items for broker in item["brokers"]}

        block_until(lambda: registered() == broker_ids, f"brokers {broker_ids}")

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

    def forget_groups(self) -> None:
        """Delete all groups in ZooKeeper."""

        async def delete() -> None:
            async with self.zookeeper_session() as session:
                names, _ = await session.children("/consumers")
                for name in names:
                    await session.delete_recursive(ConsumerGroup.path(name))

        asyncio.run(delete())
