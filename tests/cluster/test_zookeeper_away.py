"""ZooKeeper is out of reach under load: what goes on meanwhile, and what comes back.

Three ways to be away: frozen for a moment, cut off for so long that it ends the sessions, and dead.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import attrs

from clients.admin import Admin, NewTopic
from tests.cluster.consumer_group import POLL_S, MemberProcesses
from tests.cluster.load import Load
from tests.stage.cluster import DevCluster
from tests.stage.network import Link
from tests.stage.processes import ROOT, command_line, first_line, frozen
from tests.stage.topic_contents import contents
from tests.stage.waiting import DEADLINE_S
from zk.session import KazooSession
from zk.znodes import BrokerId, ControllerEpoch

TOPIC, GROUP, PARTITIONS = "consumed", "consumers", 6
MEMBERS = ("a", "b")
SHORT_S, LONG_S = 4.0, 10.0
"""Sessions that are to end; and that are not, though the machine may be slow."""
OWNED_AGAIN_S = 5.0
PATIENCE_S = 60.0
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"


def sessions_of(seconds: float) -> tuple[str, str]:
    """What a cluster is started with."""
    return "--set", f"{SESSION_TIMEOUT}={seconds * 1000:.0f}"


@contextlib.contextmanager
def zookeeper_started_again(cluster: DevCluster) -> Iterator[None]:
    """ZooKeeper, after it was killed, on its old port and data."""
    _, _, port = cluster.address("zookeeper").rpartition(":")
    data = cluster.directory / "zookeeper"
    process = subprocess.Popen(
        command_line("kbroker", "zookeeper", "--port", port, "--data", str(data)),
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
    )
    try:
        assert first_line(process).startswith("ready ")
        yield
    finally:
        process.terminate()
        process.communicate(timeout=DEADLINE_S)


@attrs.frozen
class Epochs:
    """What tells one session of the broker, the controller and the members from the next."""

    broker_czxid: int
    controller: int
    members: tuple[int, ...]

    @classmethod
    async def read(cls, zk: KazooSession, group: MemberProcesses) -> "Epochs | None":
        """None while one of them is not registered."""
        broker = await zk.exists(BrokerId.path(0))
        members = [await group.registration(zk, name) for name in MEMBERS]
        epoch, _ = await zk.get(ControllerEpoch.path())
        if broker is None or None in members:
            return None
        return cls(
            broker.czxid,
            ControllerEpoch.decode(epoch).epoch,
            tuple(stat.czxid for stat in members if stat is not None),
        )

    def all_after(self, other: "Epochs") -> bool:
        """Whether every one of them is a later one."""
        return (
            self.broker_czxid > other.broker_czxid
            and self.controller > other.controller
            and min(self.members) > max(other.members)
        )


@attrs.frozen
class Scene:
    """Members that consume what is being produced, and their sessions as they were at first."""

    cluster: DevCluster
    group: MemberProcesses
    load: Load
    first: Epochs

    async def serves(self) -> None:
        """The leader appends, answers reads of what it has appended, and commits."""
        await self.load.acknowledges(200, 20)
        partition = next(iter(self.load.records))
        last = max(self.load.records[partition])
        read = await contents(self.load.bootstrap, partition, last)
        assert read[0].value == self.load.records[partition][last]

    async def serves_for(self, seconds: float) -> None:
        """So it does at the start and at the end of such a time."""
        ends = asyncio.get_running_loop().time() + seconds
        await self.serves()
        while asyncio.get_running_loop().time() < ends:
            await asyncio.sleep(POLL_S)
        await self.serves()


@contextlib.asynccontextmanager
async def scene(cluster: DevCluster, directory: Path, session_s: float) -> AsyncIterator[Scene]:
    """Two members under load; nothing may be missing at the end of the block."""
    bootstrap = cluster.address("bootstrap")
    settings = {
        SESSION_TIMEOUT: f"{session_s * 1000:.0f}",
        "offsets.storage": "kafka",
        "dual.commit.enabled": "false",
    }
    group = MemberProcesses(cluster, GROUP, TOPIC, PARTITIONS, settings, directory)
    async with Admin(bootstrap) as admin:
        assert await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]) == {TOPIC: None}
    with group:
        for name in MEMBERS:
            group.start(name)
        async with cluster.zookeeper_session() as zk:
            await group.settled(zk, PATIENCE_S)
            first = await Epochs.read(zk, group)
        assert first is not None
        async with Load(bootstrap, TOPIC, pause_s=0.003) as load:
            await load.acknowledges(200, 20)
            await group.consumes(load.records, PATIENCE_S)  # a first rebalance bears no cut
            yield Scene(cluster, group, load, first)
        await load.assert_kept()
        await group.consumes(load.records, PATIENCE_S)


async def test_zookeeper_frozen_for_a_moment_changes_nothing(tmp_path: Path) -> None:
    with DevCluster(tmp_path / "dev", sessions_of(LONG_S)) as cluster:
        async with scene(cluster, tmp_path, LONG_S) as it:
            with frozen(cluster.pid("zookeeper")):
                await it.serves()
            await it.serves()
            async with cluster.zookeeper_session() as zk:
                await it.group.settled(zk, PATIENCE_S)
                assert await Epochs.read(zk, it.group) == it.first


async def test_zookeeper_cut_off_until_sessions_end_gives_new_ones_that_own_all_within_5_s(
    zookeeper: str, tmp_path: Path
) -> None:
    _, _, port = zookeeper.rpartition(":")
    with Link(int(port)) as link:
        address = f"127.0.0.1:{link.port}/cut-{uuid4().hex[:8]}"
        args = (*sessions_of(SHORT_S), "--zookeeper", address)
        with DevCluster(tmp_path / "dev", args) as cluster:
            async with scene(cluster, tmp_path, SHORT_S) as it:
                with link.cut():
                    await it.serves_for(SHORT_S * 1.5)
                async with cluster.zookeeper_session() as zk, asyncio.timeout(PATIENCE_S):
                    while (now := await Epochs.read(zk, it.group)) is None or not now.all_after(
                        it.first
                    ):
                        await asyncio.sleep(POLL_S)
                    await it.group.settled(zk, OWNED_AGAIN_S)
                await it.serves()


async def test_zookeeper_killed_and_started_again_late_finds_all_in_their_places(
    tmp_path: Path,
) -> None:
    """A server that starts gives every session it finds its whole time anew."""
    args = sessions_of(LONG_S)
    with contextlib.ExitStack() as after_cluster, DevCluster(tmp_path / "dev", args) as cluster:
        async with scene(cluster, tmp_path, LONG_S) as it:
            cluster.kill("zookeeper")
            await it.serves_for(LONG_S * 1.2)
            again = zookeeper_started_again(cluster)
            await asyncio.to_thread(after_cluster.enter_context, again)
            async with cluster.zookeeper_session() as zk:
                await it.group.settled(zk, PATIENCE_S)
                assert await Epochs.read(zk, it.group) == it.first
            await it.serves()
            async with Admin(cluster.address("bootstrap")) as admin:
                assert await admin.create_topics([NewTopic("new", 1, 1)]) == {"new": None}
