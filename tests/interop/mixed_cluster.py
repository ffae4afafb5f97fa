"""Stock brokers and ours in one cluster, on one tree of ZooKeeper."""

import asyncio
import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import attrs

from benchmarks.brokers import is_serving
from benchmarks.load import LoadError
from benchmarks.process import Process, spawn
from broker.kbroker.local_cluster import HOST, claim_ports
from clients.admin import PREFERRED, Admin
from protocol.errors import ErrorCode
from protocol.settings import format_properties
from protocol.topic_partition import TopicPartition
from tests.cluster.restartable_cluster import controller, partition_state
from tests.interop.handover import command_of
from tests.stage.processes import frozen
from tests.stage.stock_kafka import jars
from tests.stage.waiting import DEADLINE_S, block_until, until_equal
from zk.api import ZkSession
from zk.znodes import Controller

SETTINGS = {
    "inter.broker.protocol.version": "2.3",
    "log.message.format.version": "2.3",
    "zookeeper.session.timeout.ms": "3000",
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
JAVA_TOO = {"JAVA_TOOL_OPTIONS": "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaServer=info"}


@attrs.define(eq=False)
class MixedCluster:
    """Brokers by id, each with a port and a directory of its own.

    `makes` has the release of each, or OURS.
    """

    zookeeper: str
    directory: Path
    makes: dict[int, str]
    settings: dict[int, dict[str, str]] = attrs.field(factory=lambda: defaultdict(dict))
    """What a broker has beyond SETTINGS when it is started next."""
    ports: dict[int, int] = attrs.field(init=False)
    running: dict[int, Process] = attrs.field(factory=dict)

    @ports.default
    def _claim_ports(self) -> dict[int, int]:
        return dict(zip(self.makes, claim_ports(0, len(self.makes)), strict=True))

    @classmethod
    @contextlib.contextmanager
    def of(cls, makes: Mapping[int, str], zookeeper: str, directory: Path) -> Iterator[Self]:
        """Give a cluster none of whose brokers runs; in the end none does. Skips without Maven."""
        jars()
        cluster = cls(zookeeper, directory, dict(makes))
        try:
            yield cluster
        finally:
            for process in cluster.running.values():
                process.stop(at_once=True)

    @property
    def bootstrap(self) -> str:
        """Where the brokers are, or will be again."""
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    async def start_missing(self) -> None:
        """Return when all of them serve."""
        missing = self.makes.keys() - self.running.keys()
        for each in missing:
            self.start(each)
        for each in missing:
            await asyncio.to_thread(
                block_until, partial(self._serves, each), f"broker {each} serves"
            )

    def start(self, broker_id: int) -> None:
        """Start a broker, whose process dies with the thread that calls this."""
        places = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{HOST}:{self.ports[broker_id]}",
            "log.dirs": str(self.directory / f"log-{broker_id}"),
            "zookeeper.connect": self.zookeeper,
            "offsets.topic.replication.factor": str(len(self.makes)),
        }
        file = self.directory / f"{broker_id}.properties"
        file.write_text(format_properties(SETTINGS | places | self.settings[broker_id]))
        make = self.makes[broker_id]
        name, command = f"broker-{broker_id}-{make}", command_of(make, file)
        self.running[broker_id] = spawn(name, command, self.directory, os.environ | JAVA_TOO)

    def _serves(self, broker_id: int) -> bool:
        self.running[broker_id].check_alive()
        with contextlib.suppress(OSError, LoadError):
            return is_serving((HOST, self.ports[broker_id]))
        return False

    async def stop(self, broker_id: int, *, killed: bool = False) -> str:
        """Return when its process is gone: what its make has ever said there."""
        process = self.running.pop(broker_id)
        await asyncio.to_thread(process.stop, at_once=killed, timeout_s=DEADLINE_S)
        return process.log_file.read_text()

    # ---- who leads

    async def lead(
        self, zk: ZkSession, partitions: Sequence[TopicPartition], broker_id: int
    ) -> None:
        """Make it the preferred leader of these, and the leader, once all that run are in sync."""
        await self.in_sync(zk, partitions)
        order = [broker_id, *(each for each in self.makes if each != broker_id)]
        async with Admin(self.bootstrap) as admin:
            begun = await admin.alter_partition_reassignments(dict.fromkeys(partitions, order))
            assert set(begun.values()) == {None}
            await until_equal(admin.list_partition_reassignments, {})
        await self.elect_preferred(zk, partitions)
        for each in partitions:
            await until_equal(partial(leader, zk, each), broker_id)

    async def elect_preferred(self, zk: ZkSession, partitions: Sequence[TopicPartition]) -> None:
        """Give all of them back to their preferred leaders, once all that run are in sync."""
        await self.in_sync(zk, partitions)
        async with Admin(self.bootstrap) as admin:
            await until_equal(partial(_refused, admin, partitions), set())

    async def in_sync(self, zk: ZkSession, partitions: Sequence[TopicPartition]) -> None:
        """Return when all brokers that run have these in sync."""
        for each in partitions:
            await until_equal(partial(isr, zk, each), set(self.running))


async def elect(zk: ZkSession, running: Mapping[int, Process], broker_id: int) -> None:
    """Make a broker the controller, unless it is: the others are held still meanwhile."""
    if await controller(zk) == broker_id:
        return

    with contextlib.ExitStack() as stack:
        for other, process in running.items():
            if other != broker_id:
                stack.enter_context(frozen(process.child.pid))
        await zk.delete(Controller.path())
        await until_equal(partial(controller, zk), broker_id)


async def leader(zk: ZkSession, partition: TopicPartition) -> int:
    """Return the id of the broker that leads."""
    return (await partition_state(zk, *partition)).leader


async def isr(zk: ZkSession, partition: TopicPartition) -> set[int]:
    """Return the ids of the brokers whose replicas are in sync."""
    return set((await partition_state(zk, *partition)).isr)


async def _refused(admin: Admin, partitions: Sequence[TopicPartition]) -> set[ErrorCode]:
    """What speaks against preferred leaders now: one that was in sync may not be."""
    told = await admin.elect_leaders(PREFERRED, partitions)
    codes = {error.code for error in told.values() if error is not None}
    return codes - {ErrorCode.ELECTION_NOT_NEEDED}
