"""The machine of one broker of a simulated cluster."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, cast

import attrs

from broker.server import Broker, BrokerStopped
from broker.settings.config import load_broker_config
from compaction.job import CleaningJob
from compaction.worker_pool import InLoop, OnEvent
from core_log.memory_directory import MemoryDirectory
from core_log.storage import Directory
from kgroup.testing.simulation.story import Story
from kgroup.testing.simulation.world import Process
from kgroup.testing.simulation.zookeeper import SimSession
from protocol.topic_partition import TopicPartition
from zk.api import ZkSession

if TYPE_CHECKING:
    from kgroup.testing.simulation.cluster import Cluster

SESSION_TIMEOUT_MS = 6000
PORT = 9092
CLEANING_STEP_S = 0.3
"""The longest: so a fault may well come between two steps of a cleaning."""
DIRECTORY = "/logs"


@attrs.define(eq=False)
class _CountedWorkers:
    """Workers whose work is counted."""

    story: Story
    workers: InLoop

    async def run(
        self,
        job: CleaningJob,
        directory: Directory,
        heard: OnEvent,
    ) -> None:
        """Do the same as the product's."""
        await self.workers.run(job, directory, heard)
        self.story.counts["cleaned logs"] += 1

    def change_speed(self, bytes_per_second: float) -> None:
        """Do the same as the product's."""
        self.workers.change_speed(bytes_per_second)

    async def end_idle(self) -> None:
        """Do the same as the product's."""
        await self.workers.end_idle()


@attrs.define(eq=False)
class Node:
    """The machine of one broker: its disk stays, its processes come and go."""

    cluster: Cluster
    broker_id: int
    directory: MemoryDirectory
    rng: Random
    process: Process
    session: SimSession | None = None
    powered: bool = True
    serving: bool = False
    """Whether the logs are recovered: before that, after a power failure, they hold anything."""

    @property
    def host(self) -> str:
        """The name of the machine."""
        return f"b{self.broker_id}"

    @property
    def address(self) -> str:
        """The host:port at which the broker listens."""
        return f"{self.host}:{PORT}"

    @property
    def running(self) -> bool:
        """Say whether there is a process, well or not."""
        return self.process.alive

    def log(self, tp: TopicPartition) -> MemoryDirectory | None:
        """Return the directory of a partition's log, if there is one."""
        name = str(tp)
        return self.directory.child(name) if name in self.directory.children() else None

    def write_back(self) -> None:
        """Sync all files, as the system does from time to time."""
        for directory in (self.directory, *map(self.directory.child, self.directory.children())):
            for name in directory.files():
                directory.open_segment(name).fsync()
            directory.fsync_dir()

    def start(self) -> None:
        """Start a process of the broker."""
        world = self.cluster.world
        workers = InLoop(lambda: self.rng.random() * CLEANING_STEP_S)
        self.process = process = Process(world, self.host)
        process.skew_ms = self.cluster.skews_ms[self.host]
        self.session = self.cluster.zookeeper.session(process, SESSION_TIMEOUT_MS)

        given = {
            **self.cluster.settings,
            "broker.id": str(self.broker_id),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
        }

        with world.within(process):
            broker = Broker(
                load_broker_config(given)[0],
                zk=cast(ZkSession, self.session),
                now_ms=process.now_ms,
                rng=Random(self.rng.random()),
                open_directory=lambda path: self.directory,
                bind=world.network.bind_of(process),
                workers=_CountedWorkers(world.story, workers),
            )

        self.cluster.broker_made(self, broker)
        process.spawn(self._live(process, broker), f"broker {self.broker_id}")
        world.story.tell(self.host, "starts")

    async def _live(self, process: Process, broker: Broker) -> None:
        story = self.cluster.world.story
        try:
            await broker.start()
            self.serving = True
            story.tell(self.host, "serves")
            await broker.run_until(asyncio.Event())
        except Exception as error:
            if not (isinstance(error, BrokerStopped) or story.expects_stop(error)):
                raise
            story.tell(self.host, f"stops: {error}")
            story.bite("broker stopped")
        await broker.close()
        self.cluster.world.nature.loop.call_soon(self._exited, process)

    def _exited(self, process: Process) -> None:
        if process.alive:
            self.stop()
            self.cluster.start_later(self)

    def stop(self, *, silent: bool = False) -> None:
        """Kill the process: its connections are reset, or with `silent` never heard of again."""
        world = self.cluster.world
        self.serving = False
        world.network.stop(self.process, silent=silent)
        self.cluster.zookeeper.disconnect(self.process)
        self.process.kill()
        self.directory.unlock()
