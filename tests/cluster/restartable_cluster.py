"""A `kbroker dev` whose brokers are stopped and started again, also on other ports."""

import asyncio
import contextlib
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from pathlib import Path

import attrs

from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import Admin, NewTopic
from protocol.errors import ErrorCode
from tests.stage.cluster import DevCluster
from tests.stage.processes import frozen
from tests.stage.waiting import DEADLINE_S
from zk.api import NoNode, ZkSession
from zk.znodes import Controller, PartitionState, TopicAssignment

POLL_S = 0.02

_ADDRESS = re.compile(rf"(?<=^listeners=PLAINTEXT://){HOST}:\d+$", re.MULTILINE)


async def partition_state(zk: ZkSession, topic: str, partition: int) -> PartitionState:
    """As the controller sees it."""
    content, _ = await zk.get(PartitionState.path(topic, partition))
    return PartitionState.decode(content)


async def controller(zk: ZkSession) -> int:
    """Who is elected. Asked of ZooKeeper: brokers are told of it later."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            with contextlib.suppress(NoNode):
                content, _ = await zk.get(Controller.path())
                return Controller.decode(content).broker_id
            await asyncio.sleep(POLL_S)


async def create(admin: Admin, *topics: NewTopic) -> None:
    """Create topics of new names, each as soon as there are brokers enough for it.

    The controller may yet have to hear of a broker that is back. One that stops may have created
    a topic without a response, and then our client asks the next one.
    """
    wanted = {topic.name: topic for topic in topics}
    async with asyncio.timeout(DEADLINE_S):
        while wanted:
            verdicts = await admin.create_topics(wanted.values())
            against = {
                name: error
                for name, error in verdicts.items()
                if error is not None and error.code is not ErrorCode.TOPIC_ALREADY_EXISTS
            }
            for error in against.values():
                assert error.code is ErrorCode.INVALID_REPLICATION_FACTOR, against
            wanted = {name: wanted[name] for name in against}
            await asyncio.sleep(POLL_S)


def play(scenario: Awaitable[None]) -> None:
    """Run it, for no longer than two deadlines."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * DEADLINE_S):
            await scenario

    asyncio.run(bounded())


@attrs.define(eq=False)
class RestartableCluster:
    """`ends` ends what is started here."""

    dev: DevCluster
    brokers: int
    ends: contextlib.ExitStack
    _again: dict[int, subprocess.Popen[str]] = attrs.field(factory=dict)

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, directory: Path, brokers: int, settings: Mapping[str, str]
    ) -> Iterator["RestartableCluster"]:
        """So many brokers with these settings."""
        words = [word for pair in settings.items() for word in ("--set", "=".join(pair))]
        args = ("--brokers", str(brokers), *words)
        with DevCluster(directory, args) as dev, contextlib.ExitStack() as ends:
            yield cls(dev, brokers, ends)

    @property
    def bootstrap(self) -> str:
        """Where the brokers are by now."""
        texts = [self._properties(n).read_text() for n in range(self.brokers)]
        return ",".join(_ADDRESS.findall("\n".join(texts)))

    async def stop(self, broker_id: int, number: signal.Signals = signal.SIGKILL) -> None:
        """Return when the process is gone."""
        process = self._again.get(broker_id)
        if process is None:
            await asyncio.to_thread(self.dev.kill, f"broker-{broker_id}", number)
        else:
            process.send_signal(number)
            await asyncio.to_thread(process.wait, DEADLINE_S)

    async def start(self, broker_id: int, *, elsewhere: bool = False) -> None:
        """Return when it serves, with its id and its logs, on another port if so wanted."""
        if elsewhere:
            (port,) = claim_ports(0, 1)
            properties = self._properties(broker_id)
            properties.write_text(_ADDRESS.sub(f"{HOST}:{port}", properties.read_text()))
        again = self.dev.started_again(broker_id)
        self._again[broker_id] = await asyncio.to_thread(self.ends.enter_context, again)

    @contextlib.asynccontextmanager
    async def without(self, broker_id: int) -> AsyncIterator[None]:
        """Kill a broker; start it again at the end."""
        await self.stop(broker_id)
        try:
            yield
        finally:
            await self.start(broker_id)

    @contextlib.asynccontextmanager
    async def stopped(self, broker_id: int) -> AsyncIterator[None]:
        """Have a broker's process do nothing until the end: connections to it stay, and hang."""
        process = self._again.get(broker_id)
        pid = self.dev.pid(f"broker-{broker_id}") if process is None else process.pid
        with frozen(pid):
            yield

    async def in_sync(self, zk: ZkSession) -> None:
        """Return when all brokers are there, and every replica of every topic is in sync. Asked of
        ZooKeeper: metadata are told of it seconds later."""
        async with asyncio.timeout(DEADLINE_S):
            while not await self._is_in_sync(zk):
                await asyncio.sleep(POLL_S)

    async def _is_in_sync(self, zk: ZkSession) -> bool:
        there, _ = await zk.children("/brokers/ids")
        topics, _ = await zk.children("/brokers/topics")
        try:
            for topic in topics:
                content, _ = await zk.get(TopicAssignment.path(topic))
                for partition, replicas in TopicAssignment.decode(content).partitions.items():
                    if set((await partition_state(zk, topic, partition)).isr) != set(replicas):
                        return False
        except NoNode:  # of a topic that comes or goes
            return False
        return len(there) == self.brokers

    def _properties(self, broker_id: int) -> Path:
        return self.dev.directory / f"broker-{broker_id}.properties"
