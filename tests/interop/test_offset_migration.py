"""Offsets that move from store to store in a group with members on the JVM, both ways there are.

By the recipe of Kafka 0.8.2, which is settings and one restart after the other, and by
`kgroup migrate`, which has to find out about members that do not know of it.
"""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from clients.admin import Admin, NewTopic
from clients.producer.producer import Producer
from offsets.zookeeper_store import ZooKeeperStore
from protocol.topic_partition import TopicPartition
from tests.interop.mixed_group import MixedGroup
from tests.stage.cluster import DevCluster
from tests.stage.old_kafka import VERSIONS, compiled
from zk.session import KazooSession

PARTITIONS = 4
STARTING_S = 60.0
BATCH = 20
SETTINGS = {"zookeeper.session.timeout.ms": "20000", "auto.commit.interval.ms": "300"}

IN_ZOOKEEPER = {"offsets_storage": "zookeeper"}
IN_BOTH = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
IN_KAFKA = {"offsets_storage": "kafka", "dual_commit_enabled": "false"}
RECIPE = (IN_ZOOKEEPER, IN_BOTH, IN_KAFKA, IN_BOTH, IN_ZOOKEEPER)


def of_each_run(*versions: str) -> list[Any]:
    """Return all releases, of which the others wait for `make interop`."""
    return [
        pytest.param(version, marks=() if version in versions else pytest.mark.product)
        for version in VERSIONS
    ]


@pytest.fixture
def version(request: pytest.FixtureRequest) -> str:
    """A release of Kafka whose programs are there to be run."""
    compiled(request.param)
    return str(request.param)


class Scene:
    """A topic, and a group of one member of ours and one on the JVM."""

    def __init__(self, cluster: DevCluster, directory: Path, version: str) -> None:
        self.cluster, self.version = cluster, version
        self.topic, self.group_id = f"t-{uuid4().hex[:8]}", f"g-{uuid4().hex[:8]}"
        self.group = MixedGroup(
            cluster.address("zookeeper"),
            self.group_id,
            directory,
            {self.topic: PARTITIONS},
            ("topic", self.topic),
            SETTINGS,
        )
        self.values: set[str] = set()

    async def create_topic(self, admin: Admin) -> None:
        created = await admin.create_topics([NewTopic(self.topic, PARTITIONS, 1)])
        assert created == {self.topic: None}

    async def kgroup(self, *args: str) -> tuple[int, str]:
        done = await asyncio.to_thread(self.cluster.run, "kgroup", *args)
        return done.returncode, done.stdout + done.stderr

    async def succeeds(self, *args: str) -> None:
        code, said = await self.kgroup(*args)
        assert code == 0, f"{args}: {said}"

    async def restart(self, zk: KazooSession, number: int, settings: dict[str, str]) -> None:
        """Have the one on the JVM leave and come back, then the one of ours."""
        for kind in ("jvm", "ours"):
            if f"{kind}{number - 1}" in self.group.running:
                await self.group.leave(f"{kind}{number - 1}")
            if kind == "jvm":
                self.group.start_jvm(self.version, f"jvm{number}", **settings)
            else:
                self.group.start_ours(f"ours{number}", **settings)
            await self.group.settled(zk, STARTING_S)
            await self.says()
        await self.succeeds("verify-rebalance", self.group_id)

    async def says(self) -> None:
        """Produce, and have all of it heard by somebody."""
        async with Producer(bootstrap_servers=self.cluster.address("bootstrap")) as producer:
            for number in range(BATCH):
                value = f"{len(self.values)}"
                self.values.add(value)
                await producer.send_and_wait(
                    self.topic, value.encode(), partition=number % PARTITIONS
                )
        await self.group.hears(self.values, STARTING_S)

    async def committed(self, admin: Admin, zk: KazooSession) -> list[dict[TopicPartition, int]]:
        """In ZooKeeper and in Kafka."""
        partitions = [TopicPartition(self.topic, p) for p in range(PARTITIONS)]
        stores = (
            await ZooKeeperStore(zk).fetch(self.group_id, partitions),
            await admin.group_offsets(self.group_id),
        )
        return [{p: at.offset for p, at in store.items()} for store in stores]

    @property
    def ends(self) -> dict[TopicPartition, int]:
        each = len(self.values) // PARTITIONS
        return {TopicPartition(self.topic, p): each for p in range(PARTITIONS)}


@pytest.mark.parametrize("version", of_each_run(VERSIONS[0], VERSIONS[-1]), indirect=True)
async def test_the_recipe_of_settings_and_restarts_loses_nothing_there_and_back(
    dev_cluster: DevCluster, tmp_path: Path, version: str
) -> None:
    scene = Scene(dev_cluster, tmp_path, version)
    bootstrap = dev_cluster.address("bootstrap")
    async with Admin(bootstrap) as admin, dev_cluster.zookeeper_session() as zk:
        await scene.create_topic(admin)
        with scene.group:
            for number, settings in enumerate(RECIPE):
                await scene.restart(zk, number, settings)
            for name in list(scene.group.running):
                await scene.group.leave(name)
        in_zookeeper, _ = await scene.committed(admin, zk)
        assert in_zookeeper == scene.ends
        assert len(scene.group.heard()) == len(scene.values), "something was heard twice"


@pytest.mark.parametrize("version", of_each_run(VERSIONS[1]), indirect=True)
async def test_a_member_on_the_jvm_is_named_restarted_and_proven_by_what_it_commits(
    dev_cluster: DevCluster, tmp_path: Path, version: str
) -> None:
    scene = Scene(dev_cluster, tmp_path, version)
    bootstrap = dev_cluster.address("bootstrap")
    async with Admin(bootstrap) as admin, dev_cluster.zookeeper_session() as zk:
        await scene.create_topic(admin)
        with scene.group:
            await scene.restart(zk, 0, IN_ZOOKEEPER)
            code, said = await scene.kgroup("migrate", "start", scene.group_id, "--wait", "8")
            assert code == 1
            assert f"error: {scene.group_id}_jvm0: not obeying: set offsets.storage=kafka" in said
            assert f"error: {scene.group_id}_ours0" not in said

            await scene.group.leave("jvm0")
            scene.group.start_jvm(version, "jvm1", **IN_BOTH)
            await scene.group.settled(zk, STARTING_S)
            verify = asyncio.create_task(
                scene.kgroup("migrate", "verify", scene.group_id, "--seconds", "3")
            )
            while not verify.done():
                await scene.says()
            code, said = verify.result()
            assert code == 0, said

            await scene.succeeds("migrate", "finalize", scene.group_id)
            await scene.group.leave("jvm1")
            scene.group.start_jvm(version, "jvm2", **IN_KAFKA)
            await scene.group.settled(zk, STARTING_S)
            await scene.says()
            for name in list(scene.group.running):
                await scene.group.leave(name)
        _, in_kafka = await scene.committed(admin, zk)
        assert in_kafka == scene.ends
