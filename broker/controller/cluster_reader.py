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

from broker.controller.effects import (
    ReadAssignments,
    ReadBrokers,
    ReadDeletions,
    ReadIsrChanges,
    ReadLogDirEvents,
    ReadPreferredElection,
    ReadReassignments,
    ReadTopics,
)
from broker.controller.events import (
    AssignmentsRead,
    BrokersChanged,
    ClusterRead,
    Event,
    InSyncSetChanged,
    IsrChangesRead,
    LeadershipRead,
    LogDirEventsRead,
    PartitionStatesRead,
    PreferredElectionRead,
    ReassignmentsRead,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UncleanElectionRead,
    WatchFired,
)
from broker.controller.state import Leadership, LiveBroker, Reassignment
from broker.zk_retry import retry_until_connected
from protocol.topic_partition import TopicPartition
from zk.api import Stat, Watch, WatchEvent, ZkSession, get_if_there
from zk.znodes import (
    BrokerId,
    DeleteTopic,
    EntityConfig,
    IsrChange,
    LogDirEvent,
    PartitionState,
    PreferredReplicaElection,
    ReassignPartitions,
    TopicAssignment,
    ZnodeError,
)

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W", ReassignPartitions, PreferredReplicaElection)
N = TypeVar("N", IsrChange, LogDirEvent)

logger = logging.getLogger(__name__)

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
        brokers, topics, marked, tool, preferred = await asyncio.gather(
            self.brokers(),
            self.topics(),
            self.marked_for_deletion(),
            self.reassignments(),
            self.preferred_election(),
        )
        found = await self._each(topics.topics, self._topic)
        nodes = {topic: node for topic, node in found.items() if node is not None}
        states = await self.partition_states(
            TopicPartition(topic, index)
            for topic, node in nodes.items()
            for index in node.partitions
        )
        leadership = {each: known for each, known in states.states.items() if known is not None}
        return ClusterRead(
            brokers.brokers,
            {topic: node.partitions for topic, node in nodes.items()},
            leadership,
            marked.topics,
            {p: each for topic, node in nodes.items() for p, each in _moving(topic, node)},
            tool.targets,
            preferred.partitions,
        )

    async def brokers(self) -> BrokersChanged:
        """The registered brokers with their epochs."""
        watch = EventWatch(self.put, WatchFired(ReadBrokers()))
        ids = await self._children(BrokerId.directory(), watch)
        found = await self._each((int(each) for each in ids if each.isdigit()), self._broker)
        return BrokersChanged(tuple(each for each in found.values() if each is not None))

    async def topics(self) -> TopicsChanged:
        """The names of all topics."""
        watch = EventWatch(self.put, WatchFired(ReadTopics()))
        return TopicsChanged(tuple(await self._children(TopicAssignment.directory(), watch)))

    async def marked_for_deletion(self) -> TopicsMarkedForDeletion:
        """The names of the topics that have a marker."""
        watch = EventWatch(self.put, WatchFired(ReadDeletions()))
        return TopicsMarkedForDeletion(tuple(await self._children(DeleteTopic.directory(), watch)))

    async def assignments(self, topics: Iterable[str]) -> AssignmentsRead:
        """The replicas of these topics' partitions."""
        found = await self._each(topics, self._topic)
        return AssignmentsRead(
            {topic: node.partitions if node else None for topic, node in found.items()}
        )

    async def partition_states(self, partitions: Iterable[TopicPartition]) -> PartitionStatesRead:
        """The partitions' leaders and in-sync sets, with the versions of their nodes."""
        return PartitionStatesRead(await self._leaderships(partitions))

    async def leadership(self, partitions: Iterable[TopicPartition]) -> LeadershipRead:
        """What the partitions' leaders have made of their states."""
        return LeadershipRead(await self._leaderships(partitions))

    async def watched_leadership(self, partition: TopicPartition) -> LeadershipRead:
        """The same of one partition; that it changes again is told."""
        watch = EventWatch(self.put, InSyncSetChanged(partition))

        async def read(each: TopicPartition) -> Leadership | None:
            path = PartitionState.path(*each)
            return _leadership(await self._get(path, watch), path)

        return LeadershipRead(await self._each([partition], read))

    async def reassignments(self) -> ReassignmentsRead:
        """Where the tool wants which partitions."""
        node = await self._wish(ReassignPartitions, WatchFired(ReadReassignments()))
        targets = node.replicas if node else {}
        return ReassignmentsRead({TopicPartition(*each): targets[each] for each in targets})

    async def preferred_election(self) -> PreferredElectionRead:
        """Which partitions the tool wants led by their preferred leaders."""
        node = await self._wish(PreferredReplicaElection, WatchFired(ReadPreferredElection()))
        return PreferredElectionRead(
            tuple(TopicPartition(*each) for each in node.partitions) if node else None
        )

    async def watch_notifications(self) -> None:
        """Have it told when there are notifications."""
        for kind, read in ((LogDirEvent, ReadLogDirEvents()), (IsrChange, ReadIsrChanges())):
            await self._children(kind.directory(), EventWatch(self.put, WatchFired(read)))

    async def isr_changes(self) -> IsrChangesRead:
        """Whose in-sync sets changed."""
        paths, found = await self._notifications(IsrChange, ReadIsrChanges())
        partitions = dict.fromkeys(
            TopicPartition(*each) for node in found for each in node.partitions
        )
        return IsrChangesRead(paths, tuple(partitions))

    async def log_dir_events(self) -> LogDirEventsRead:
        """Which brokers lost a disk."""
        paths, found = await self._notifications(LogDirEvent, ReadLogDirEvents())
        return LogDirEventsRead(paths, tuple(sorted({node.broker_id for node in found})))

    async def unclean_election(self, partitions: tuple[TopicPartition, ...]) -> UncleanElectionRead:
        """Whether the partitions' topics allow unclean elections."""
        topics = {each.topic for each in partitions}
        return UncleanElectionRead(
            partitions, await self._each(sorted(topics), self._allows_unclean)
        )

    async def _broker(self, broker_id: int) -> LiveBroker | None:
        watch = EventWatch(self.put, WatchFired(ReadBrokers()))
        path = BrokerId.path(broker_id)
        found = await self._get(path, watch)
        if found is None:
            return None
        broker, stat = BrokerId.decode(found[0], path), found[1]
        return LiveBroker(broker_id, stat.czxid, tuple(broker.endpoints), broker.rack)

    async def _topic(self, topic: str) -> TopicAssignment | None:
        watch = EventWatch(self.put, WatchFired(ReadAssignments((topic,))))
        path = TopicAssignment.path(topic)
        found = await self._get(path, watch)
        return TopicAssignment.decode(found[0], path) if found else None

    async def _leaderships(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Leadership | None]:
        """Of many partitions, a thousand in one request."""
        wanted = list(partitions)
        paths = [PartitionState.path(*each) for each in wanted]
        found = await retry_until_connected(self.zk, lambda: self.zk.get_many(paths))
        understood: dict[TopicPartition, Leadership | None] = {}
        for each, path, node in zip(wanted, paths, found, strict=True):
            try:
                understood[each] = _leadership(node, path)
            except ZnodeError as error:
                logger.error("left out %s: %s", each, error)
        return understood

    async def _allows_unclean(self, topic: str) -> bool:
        path = EntityConfig.path("topics", topic)
        found = await self._get(path)
        try:
            value = EntityConfig.decode(found[0], path).config.get(UNCLEAN) if found else None
        except ZnodeError as error:
            logger.error("%s; no unclean election before that is mended", error)
            return False
        return self.unclean_default if value is None else value.strip().lower() == "true"

    async def _wish(self, kind: type[W], event: Event) -> W | None:
        """What a tool left at one path, with a watch on it whether or not it is there."""
        path, watch = kind.path(), EventWatch(self.put, event)
        while (found := await self._get(path, watch)) is None:
            if not await retry_until_connected(self.zk, lambda: self.zk.exists(path, watch)):
                return None
        try:
            return kind.decode(found[0], path)
        except ZnodeError as error:
            logger.error("ignored: %s", error)
            return None

    async def _notifications(
        self, kind: type[N], read: ReadIsrChanges | ReadLogDirEvents
    ) -> tuple[tuple[str, ...], list[N]]:
        """The paths of all notifications of one kind, and those that can be understood."""

        async def one(path: str) -> N | None:
            found = await self._get(path)
            return kind.decode(found[0], path) if found else None

        directory = kind.directory()
        names = await self._children(directory, EventWatch(self.put, WatchFired(read)))
        paths = tuple(f"{directory}/{name}" for name in sorted(names))
        found = await self._each(paths, one)
        return paths, [node for node in found.values() if node is not None]

    async def _get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat] | None:
        return await retry_until_connected(self.zk, lambda: get_if_there(self.zk, path, watch))

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


def _leadership(node: tuple[bytes | None, Stat] | None, path: str) -> Leadership | None:
    if node is None:
        return None
    data, stat = node
    return Leadership(PartitionState.decode(data, path), stat.version, stat.mzxid)


def _moving(topic: str, node: TopicAssignment) -> list[tuple[TopicPartition, Reassignment]]:
    """The reassignments that the topic's node tells of."""
    found = []
    for index, replicas in node.partitions.items():
        adding, removing = node.adding.get(index, ()), node.removing.get(index, ())
        if adding or removing:
            original = tuple(each for each in replicas if each not in adding)
            target = tuple(each for each in replicas if each not in removing)
            found.append((TopicPartition(topic, index), Reassignment(original, target)))
    return found
