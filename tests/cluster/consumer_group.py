"""A group whose members are `kgroup consume` processes, seen from outside: files and znodes."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import attrs

from protocol.topic_partition import TopicPartition
from tests.stage.cluster import DevCluster
from tests.stage.processes import ROOT, command_line
from zk.api import NoNode, Stat, ZkSession
from zk.consumer_znodes import ConsumerRegistration, PartitionOwner

POLL_S = 0.02
READING_POLL_S = 0.25


@attrs.define(eq=False)
class MemberProcesses:
    """The members by name. Use it as a context manager: none of them outlives it."""

    cluster: DevCluster
    group: str
    topic: str
    partitions: int
    settings: Mapping[str, str]
    directory: Path
    """For a file of each member with what it has consumed."""
    running: dict[str, subprocess.Popen[bytes]] = attrs.field(factory=dict)

    def __enter__(self) -> "MemberProcesses":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
            process.wait()

    def start(self, name: str) -> None:
        """A new member; its file begins with its first message."""
        settings = {"consumer.id": name, "auto.commit.interval.ms": "1000", **self.settings}
        command = command_line(
            "kgroup",
            *("consume", "--topic", self.topic, "--group", self.group),
            *("--from-beginning", "-o", "json"),
            *(word for pair in settings.items() for word in ("--property", "=".join(pair))),
        )
        with (
            (self.directory / f"{name}.messages").open("wb") as messages,
            (self.directory / f"{name}.errors").open("wb") as errors,
        ):
            self.running[name] = subprocess.Popen(
                command, cwd=ROOT, env=self.cluster.env, stdout=messages, stderr=errors
            )

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        self.running[name].kill()
        self.running.pop(name).wait()

    def leave(self, name: str) -> None:
        """Have a member leave in good order; it goes on its own way from here."""
        self.running.pop(name).send_signal(signal.SIGTERM)

    def errors(self, name: str) -> str:
        """What a member has said of itself."""
        return (self.directory / f"{name}.errors").read_text()

    async def consumes(
        self, records: Mapping[TopicPartition, Mapping[int, bytes]], within_s: float
    ) -> None:
        """Return when every record, a value by its offset, is in the file of some member."""
        missing = {
            (partition.partition, offset, value.decode())
            for partition, values in records.items()
            for offset, value in values.items()
        }
        ends = asyncio.get_running_loop().time() + within_s
        while missing := missing - self._consumed():
            assert asyncio.get_running_loop().time() < ends, f"missing: {sorted(missing)[:10]} …"
            await asyncio.sleep(READING_POLL_S)

    def _consumed(self) -> set[tuple[int, int, str]]:
        messages = (
            json.loads(line)
            for file in self.directory.glob("*.messages")
            for line in file.read_bytes().split(b"\n")[:-1]
        )
        return {(m["partition"], m["offset"], m["value"]) for m in messages}

    @property
    def shares(self) -> dict[int, str]:
        """Who should own what. By range, with a number of members that divides the partitions."""
        names = sorted(self.running)
        each = self.partitions // len(names)
        return {
            partition: f"{self.group}_{names[partition // each]}-0"
            for partition in range(self.partitions)
        }

    async def owners(self, zk: ZkSession) -> dict[int, str]:
        """The thread that owns each partition, of those that are owned."""
        owners = {}
        for partition in range(self.partitions):
            try:
                owner, _ = await zk.get(PartitionOwner.path(self.group, self.topic, partition))
            except NoNode:
                continue
            owners[partition] = PartitionOwner.decode(owner).consumer_thread_id
        return owners

    async def registration(self, zk: ZkSession, name: str) -> Stat | None:
        """The state of a member's znode in the list of members; None when it is not there."""
        return await zk.exists(ConsumerRegistration.path(self.group, f"{self.group}_{name}"))

    async def registered(self, zk: ZkSession, name: str, deadline_s: float) -> None:
        """Return when a member is in the list of members."""
        async with asyncio.timeout(deadline_s):
            while await self.registration(zk, name) is None:
                assert self.running[name].poll() is None, self.errors(name)
                await asyncio.sleep(POLL_S)

    async def settled(self, zk: ZkSession, within_s: float) -> None:
        """Return when those that run own exactly their shares."""
        ends = asyncio.get_running_loop().time() + within_s
        while (owners := await self.owners(zk)) != self.shares:
            for name, process in self.running.items():
                assert process.poll() is None, self.errors(name)
            late = f"after {within_s} s {owners}, wanted {self.shares}"
            assert asyncio.get_running_loop().time() < ends, late
            await asyncio.sleep(POLL_S)
