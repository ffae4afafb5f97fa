"""ZooKeeper stops answering under load: what goes on meanwhile, and what comes back."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attrs
import pytest

from clients.admin import Admin, NewTopic
from tests.cluster.consumer_group import POLL_S, MemberProcesses
from tests.cluster.load import Load
from tests.dev_cluster import DEADLINE_S, ROOT, DevCluster, command_line, first_line
from tests.topic_contents import contents
from zk.session import KazooSession
from zk.znodes import BrokerId, ControllerEpoch

PARTITIONS = 6
SESSION_TIMEOUT_S = 4.0
OWNED_AGAIN_S = 5.0
PATIENCE_S = 30.0
MEMBERS = ("a", "b")
SESSION_TIMEOUT = "zookeeper.session.timeout.ms"
SHORT = ("--set", f"{SESSION_TIMEOUT}={SESSION_TIMEOUT_S * 1000:.0f}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("away"), SHORT) as cluster:
        yield cluster


@contextlib.contextmanager
def frozen(cluster: DevCluster) -> Iterator[None]:
    """ZooKeeper holds its connections and answers nothing."""
    os.kill(cluster.pid("zookeeper"), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(cluster.pid("zookeeper"), signal.SIGCONT)


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
    """Members that consume what is being produced."""

    cluster: DevCluster
    group: MemberProcesses
    load: Load

    async def epochs(self) -> Epochs | None:
        async with self.cluster.zookeeper_session() as zk:
            return await Epochs.read(zk, self.group)

    async def settled(self, within_s: float) -> None:
        async with self.cluster.zookeeper_session() as zk:
            await self.group.settled(zk, within_s)

    async def serves(self) -> None:
        """The leaders append, answer reads of what they have appended, and commit."""
        await self.load.acknowledges(200, 20)
        partition = next(iter(self.load.records))
        last = max(self.load.records[partition])
        read = await contents(self.load.bootstrap, partition, last)
        assert read[0].value == self.load.records[partition][last]


@contextlib.asynccontextmanager
async def scene(cluster: DevCluster, topic: str, directory: Path) -> AsyncIterator[Scene]:
    """Two members under load; nothing may be missing at the end of the block."""
    settings = {
        SESSION_TIMEOUT: f"{SESSION_TIMEOUT_S * 1000:.0f}",
        "offsets.storage": "kafka",
        "dual.commit.enabled": "false",
    }
    group = MemberProcesses(cluster, f"of-{topic}", topic, PARTITIONS, settings, directory)
    async with Admin(cluster.address("bootstrap")) as admin:
        assert await admin.create_topics([NewTopic(topic, PARTITIONS, 1)]) == {topic: None}
    load = Load(cluster.address("bootstrap"), topic, 0.003, f"idle-{topic}")
    with group:
        for name in MEMBERS:
            group.start(name)
        async with cluster.zookeeper_session() as zk:
            await group.settled(zk, PATIENCE_S)
        async with load:
            await load.acknowledges(200, 20)
            yield Scene(cluster, group, load)
        await load.assert_kept()
        await group.consumes(load.records, PATIENCE_S)


async def passes(since: float, seconds: float) -> None:
    """Return when so much time has gone by since that time of the loop."""
    await asyncio.sleep(since + seconds - asyncio.get_running_loop().time())


async def test_zookeeper_frozen_for_less_than_the_session_timeout_changes_nothing(
    cluster: DevCluster, tmp_path: Path
) -> None:
    async with scene(cluster, "short", tmp_path) as scenery:
        before = await scenery.epochs()
        with frozen(cluster):
            since = asyncio.get_running_loop().time()
            await scenery.serves()
            await passes(since, SESSION_TIMEOUT_S / 4)
        await scenery.serves()
        await scenery.settled(OWNED_AGAIN_S)
        assert before is not None
        assert await scenery.epochs() == before


async def test_zookeeper_frozen_for_longer_gives_new_sessions_that_own_everything_within_5_s(
    cluster: DevCluster, tmp_path: Path
) -> None:
    async with scene(cluster, "long", tmp_path) as scenery:
        before = await scenery.epochs()
        assert before is not None
        with frozen(cluster):
            since = asyncio.get_running_loop().time()
            await scenery.serves()
            await passes(since, SESSION_TIMEOUT_S * 1.5)
            await scenery.serves()
        async with asyncio.timeout(PATIENCE_S):
            while (now := await scenery.epochs()) is None or not now.all_after(before):
                await asyncio.sleep(POLL_S)
        await scenery.settled(OWNED_AGAIN_S)
        await scenery.serves()


async def test_zookeeper_killed_and_started_again_late_finds_all_in_their_places(
    tmp_path: Path,
) -> None:
    """A server that starts gives every session it finds its whole time anew."""
    with contextlib.ExitStack() as after_cluster, DevCluster(tmp_path / "dev", SHORT) as cluster:
        async with scene(cluster, "gone", tmp_path) as scenery:
            before = await scenery.epochs()
            cluster.kill("zookeeper")
            since = asyncio.get_running_loop().time()
            await scenery.serves()
            await passes(since, SESSION_TIMEOUT_S * 1.5)
            await scenery.serves()
            again = zookeeper_started_again(cluster)
            await asyncio.to_thread(after_cluster.enter_context, again)
            await scenery.settled(PATIENCE_S)
            await scenery.serves()
            assert await scenery.epochs() == before
            async with Admin(cluster.address("bootstrap")) as admin:
                assert await admin.create_topics([NewTopic("new", 1, 1)]) == {"new": None}
