"""What the controller reads of ZooKeeper, and watches, for the events that decide asks for.

Reads are pipelined: a cluster is read in as many round trips as its tree is deep. A node that
cannot be understood is logged and left out, so that one broken node ends one partition and not
the controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import attrs

from broker.controller.effects import ReadAssignments, ReadBrokers, ReadDeletions, ReadTopics
from broker.controller.events import (
    AssignmentsRead,
    BrokersChanged,
    ClusterRead,
    Event,
    PartitionStatesRead,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UncleanElectionRead,
    WatchFired,
)
from broker.controller.state import Leadership, LiveBroker
from broker.zk_retry import retry_until_connected
from protocol.topic_partition import TopicPartition
from zk.api import NoNode, Stat, Watch, WatchEvent, ZkSession
from zk.znodes import (
    BrokerId,
    DeleteTopic,
    EntityConfig,
    PartitionState,
    TopicAssignment,
    ZnodeError,
)

K = TypeVar("K")
V = TypeVar("V")

logger = logging.getLogger(__name__)

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
UNCLEAN = "unclean.leader.election.enable"


@attrs.frozen
class EventWatch:
    """A watch that becomes an event. Equal ones on one node are set, and fire, once."""

    put: Callable[[Event], None]
    event: Event

    def __call__(self, fired: WatchEvent) -> None:
        self.put(self.event)


@attrs.frozen
class ClusterReader:
    """Reads by `zk`; what changes afterwards is told to `put` as WatchFired.

    `unclean_default` is the broker's own `unclean.leader.election.enable`.
    """

    zk: ZkSession
    put: Callable[[Event], None]
    unclean_default: bool = False

    async def cluster(self) -> ClusterRead:
        """All that a new controller must know."""
        brokers, topics, marked = await asyncio.gather(
            self.brokers(), self.topics(), self.marked_for_deletion()
        )
        read = await self.assignments(topics.topics)
        assignments = {topic: each for topic, each in read.assignments.items() if each is not None}
        states = await self.partition_states(
            TopicPartition(topic, index) for topic, each in assignments.items() for index in each
        )
        leadership = {each: known for each, known in states.states.items() if known is not None}
        return ClusterRead(brokers.brokers, assignments, leadership, marked.topics)

    async def brokers(self) -> BrokersChanged:
        """The registered brokers with their epochs."""
        ids = await self._children(BROKER_IDS, EventWatch(self.put, WatchFired(ReadBrokers())))
        found = await self._each((int(each) for each in ids if each.isdigit()), self._broker)
        return BrokersChanged(tuple(each for each in found.values() if each is not None))

    async def topics(self) -> TopicsChanged:
        """The names of all topics."""
        watch = EventWatch(self.put, WatchFired(ReadTopics()))
        return TopicsChanged(tuple(await self._children(TOPICS, watch)))

    async def marked_for_deletion(self) -> TopicsMarkedForDeletion:
        """The names of the topics that have a marker."""
        watch = EventWatch(self.put, WatchFired(ReadDeletions()))
        return TopicsMarkedForDeletion(tuple(await self._children(DeleteTopic.directory(), watch)))

    async def assignments(self, topics: Iterable[str]) -> AssignmentsRead:
        """The replicas of these topics' partitions."""
        return AssignmentsRead(await self._each(topics, self._assignment))

    async def partition_states(self, partitions: Iterable[TopicPartition]) -> PartitionStatesRead:
        """The partitions' leaders and in-sync sets, with the versions of their nodes."""
        return PartitionStatesRead(await self._each(partitions, self._leadership))

    async def unclean_election(self, partitions: tuple[TopicPartition, ...]) -> UncleanElectionRead:
        """Whether the partitions' topics allow unclean elections."""
        topics = {each.topic for each in partitions}
        return UncleanElectionRead(
            partitions, await self._each(sorted(topics), self._allows_unclean)
        )

    async def _broker(self, broker_id: int) -> LiveBroker | None:
        watch = EventWatch(self.put, WatchFired(ReadBrokers()))
        found = await self._get(BrokerId.path(broker_id), watch)
        if found is None:
            return None
        broker, stat = BrokerId.decode(found[0]), found[1]
        return LiveBroker(broker_id, stat.czxid, tuple(broker.endpoints), broker.rack)

    async def _assignment(self, topic: str) -> dict[int, tuple[int, ...]] | None:
        watch = EventWatch(self.put, WatchFired(ReadAssignments((topic,))))
        found = await self._get(TopicAssignment.path(topic), watch)
        return dict(TopicAssignment.decode(found[0]).partitions) if found else None

    async def _leadership(self, partition: TopicPartition) -> Leadership | None:
        found = await self._get(PartitionState.path(*partition))
        return Leadership(PartitionState.decode(found[0]), found[1].version) if found else None

    async def _allows_unclean(self, topic: str) -> bool:
        found = await self._get(EntityConfig.path("topics", topic))
        value = EntityConfig.decode(found[0]).config.get(UNCLEAN) if found else None
        return self.unclean_default if value is None else value.strip().lower() == "true"

    async def _get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat] | None:
        try:
            return await retry_until_connected(self.zk, lambda: self.zk.get(path, watch))
        except NoNode:
            return None

    async def _children(self, path: str, watch: Watch) -> list[str]:
        names, _ = await retry_until_connected(self.zk, lambda: self.zk.children(path, watch))
        return names

    async def _each(self, keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
        """`read(key)` for all keys at once, without those whose nodes cannot be understood."""
        wanted = list(keys)
        results = await asyncio.gather(*(read(key) for key in wanted), return_exceptions=True)
        understood = {}
        for key, result in zip(wanted, results, strict=True):
            if isinstance(result, ZnodeError):
                logger.error("left out %s: %s", key, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                understood[key] = result
        return understood
