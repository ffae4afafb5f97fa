"""Measure a rebalance: a fourth member joins three that own 300 partitions without messages.

Each member is a process: ours is `kgroup consume`, the peer's is Kafka's own high-level consumer on
the JVM. All have default settings except auto.offset.reset, and use the same ZooKeeper and the same
broker of ours.

The time comes from ZooKeeper's stamps: from the creation of the newcomer's registration to the last
write of an owner node, in the first state in which all 300 have their right owners. Requests are
counted in a second run, by a proxy, from that creation until nothing has happened for QUIET_S,
which is longer than a member's back-off.
"""

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import attrs
import pytest

from benchmarks.brokers import Broker
from benchmarks.rounds import Contestant, Rounds, alternate
from benchmarks.table import Row, at_most
from benchmarks.zookeeper_proxy import CountingProxy
from protocol.topic_partition import TopicPartition
from tests.interop.mixed_group import MixedGroup
from tests.stage.old_kafka import compiled
from zk.api import Stat
from zk.session import KazooSession
from zk.znodes import ConsumerRegistration, PartitionOwner

PARTITIONS = 300
SETTLED = ("a", "b", "c")
NEWCOMER = "d"
PEER = "1.1.1"
QUIET_S = 3.0
POLL_S = 0.02
PATIENCE_S = 60.0

_group_numbers = itertools.count()


def measure(broker: Broker, rounds: Rounds) -> Iterator[Row]:
    """Yield rows of seconds and of the group's ZooKeeper requests; the peer's are the JVM's."""
    with broker.create_topic(PARTITIONS) as topic:
        contestants = [_joining(broker, topic, None)]
        try:
            # The tests' helper skips where there is no Java or no Maven.
            compiled(PEER)
        except pytest.skip.Exception:
            pass  # there is no peer: our figures stand alone
        else:
            contestants.append(_joining(broker, topic, PEER))
        seconds, requests = alternate(contestants, rounds)
    title = f"a 4th joins 3 members, {PARTITIONS} partitions · Kafka {PEER}'s"
    yield Row(title, "s", at_most(1 / 5), seconds)
    yield Row(title, "ZooKeeper requests", at_most(1 / 3), requests)


def _joining(broker: Broker, topic: str, version: str | None) -> Contestant:
    async def join() -> tuple[float, float]:
        async with _scene(broker, topic, version) as scene:
            seconds = await scene.join()

        # A second run, since the proxy would slow the first.
        async with _scene(broker, topic, version, counts=True) as scene:
            await scene.join()
            await scene.rest()
            assert scene.proxy is not None
            return seconds, scene.proxy.requests.total()

    return lambda _: asyncio.run(join())


@attrs.define(eq=False)
class Scene:
    """A group, a session with its ZooKeeper, and the proxy of its members, if there is one."""

    group: MixedGroup
    version: str | None
    """The version of Kafka, for members on the JVM."""
    zk: KazooSession
    proxy: CountingProxy | None

    async def join(self) -> float:
        """Start three members and, when they are at rest, a fourth; return its seconds."""
        # The three members first, until nothing moves.
        for name in SETTLED:
            self._start(name)
        await self.rest()
        self._start(NEWCOMER)
        owners = await self._await_owners()
        _, registration = await self.zk.get(registration_path(self.group.group))

        # Both ends by ZooKeeper's clock: our polling does not count.
        return (max(stat.mtime_ms for stat in owners.values()) - registration.ctime_ms) / 1000

    async def rest(self) -> None:
        """Return when no owner node was written, and no request was counted, for QUIET_S."""
        loop = asyncio.get_running_loop()
        owners = await self._await_owners()
        since = loop.time()
        while max(since, self.proxy.last_at if self.proxy else 0.0) + QUIET_S > loop.time():
            await asyncio.sleep(POLL_S)
            if (now := await self._await_owners()) != owners:
                owners = now
                since = loop.time()

    def _start(self, name: str) -> None:
        if self.version is None:
            self.group.start_ours(name)
        else:
            self.group.start_jvm(self.version, name)

    async def _await_owners(self) -> Mapping[TopicPartition, Stat]:
        """Return the owner nodes when each partition has its right owner."""
        paths = {p: PartitionOwner.path(self.group.group, *p) for p in sorted(self.group.shares)}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                nodes = dict(zip(paths, await self.zk.get_many([*paths.values()]), strict=True))
                owned = {p: (node[0] or b"").decode() for p, node in nodes.items() if node}
                if owned == self.group.shares:
                    return {p: node[1] for p, node in nodes.items() if node}
                await asyncio.sleep(POLL_S)


def registration_path(group: str) -> str:
    """Return the path of the newcomer's registration."""
    return ConsumerRegistration.path(group, f"{group}_{NEWCOMER}")


@asynccontextmanager
async def _scene(
    broker: Broker, topic: str, version: str | None, *, counts: bool = False
) -> AsyncIterator[Scene]:
    name = f"rebalance-{next(_group_numbers)}"
    zookeeper = broker.zookeeper
    async with AsyncExitStack() as stack:
        zk = KazooSession(zookeeper)
        await zk.start()
        stack.push_async_callback(zk.close)
        proxy = CountingProxy(zookeeper, registration_path(name)) if counts else None
        if proxy:
            zookeeper = await stack.enter_async_context(proxy.serve())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        group = MixedGroup(zookeeper, name, directory, {topic: PARTITIONS}, ("topic", topic))
        yield Scene(stack.enter_context(group), version, zk, proxy)
