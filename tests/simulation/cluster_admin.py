"""An administrator of the cluster and its internal topics, in the middle of everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING

import attrs

from clients.admin import PREFERRED, Admin, ConfigResource, NewPartitions
from kgroup.testing.simulation.cluster import CLIENT
from protocol.topic_partition import TopicPartition
from tests.simulation.workload import FAILURES, TOPIC

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

OFFSETS_TOPIC = "__consumer_offsets"
PAUSE_S = (1.0, 8.0)
SEGMENT_BYTES = ("65536", "100000", "1000000")


@attrs.define(eq=False)
class ClusterAdmin:
    """Asks for changes that a cluster must bear at any time; a refusal is as good as a success."""

    cluster: Cluster
    name: str
    rng: Random

    async def live(self) -> None:
        """Ask for ever."""
        story = self.cluster.world.story
        settings = CLIENT | {"bootstrap.servers": self.cluster.draw_bootstrap(self.rng)}
        wishes = (self._grow_offsets_topic, self._change_policy, self._elect, self._reorder)
        async with Admin(settings) as admin:
            while True:
                await asyncio.sleep(self.rng.uniform(*PAUSE_S))
                wish: Callable[[Admin], Awaitable[object]] = self.rng.choice(wishes)
                try:
                    story.tell(self.name, f"{wish.__name__[1:]}: {await wish(admin)}")
                except FAILURES as error:
                    story.tell(self.name, f"cannot {wish.__name__[1:]}: {error}")
                    story.bite("wish refused")

    async def _grow_offsets_topic(self, admin: Admin) -> object:
        partitions = {OFFSETS_TOPIC: NewPartitions(self.rng.randint(4, 9))}
        return await admin.create_partitions(partitions)

    async def _change_policy(self, admin: Admin) -> object:
        topic = ConfigResource.topic(self.rng.choice((TOPIC, OFFSETS_TOPIC)))
        segment_bytes = self.rng.choice(SEGMENT_BYTES)
        return await admin.incremental_alter_configs({topic: {"segment.bytes": segment_bytes}})

    async def _elect(self, admin: Admin) -> object:
        return await admin.elect_leaders(PREFERRED)

    async def _reorder(self, admin: Admin) -> object:
        """Give a partition its replicas in another order: another leader is preferred."""
        partition = TopicPartition(TOPIC, self.rng.randrange(self.cluster.partitions))
        replicas = [node.broker_id for node in self.cluster.nodes]
        self.rng.shuffle(replicas)
        return await admin.alter_partition_reassignments({partition: replicas})
