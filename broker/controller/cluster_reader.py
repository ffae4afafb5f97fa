"""Read the cluster from ZooKeeper, with watches, into the events that decide asks for.

Reads are pipelined: a cluster is read in as many round trips as its tree is deep. A node that
cannot be parsed is logged and left out, so that one broken node costs one partition and not the
controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

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
    IsrChanged,
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
from broker.controller.state import Leadership, Reassignment, RegisteredBroker
from broker.process.zk_retry import retry_until_connected
from protocol.frozen import frozen
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
T = TypeVar("T", ReassignPartitions, PreferredReplicaElection)
N = TypeVar("N", IsrChange, LogDirEvent)

logger = logging.getLogger(__name__)

# The topic's setting; brokers have a default under the same name.
UNCLEAN = "unclean.leader.election.enable"


@frozen
class EventWatch:
    """A watch that becomes an event. Equal watches on one node are set, and fire, once."""

    put: Callable[[Event], None]
    event: Event

    def __call__(self, watch_event: WatchEvent) -> None:
        self.put(self.event)


@frozen
class ClusterReader:
    """Reads by `zk`. `put` gets a WatchFired when something changes afterwards.

    `unclean_default` is the broker's own `unclean.leader.election.enable`.
    """

    zk: ZkSession
    put: Callable[[Event], None]
    unclean_default: bool = False

    # --- the whole cluster

    async def cluster(self) -> ClusterRead:
        """Read the whole cluster."""
        # The lists and the nodes of tools, each with a watch.
        brokers, topics, marked, tool, preferred = await asyncio.gather(
            self.brokers(),
            self.topics(),
            self.marked_for_deletion(),
            self.reassignments(),
            self.preferred_election(),
        )

        # One level deeper: the topics' nodes, then their partitions' states.
        topic_nodes = await self._read_all(topics.topics, self._topic)
        nodes = {topic: node for topic, node in topic_nodes.items() if node is not None}
        read = await self.partition_states(
            TopicPartition(topic, index)
            for topic, node in nodes.items()
            for index in node.partitions
        )

        # A partition without a state has never had a leader.
        leadership = {
            partition: leadership
            for partition, leadership in read.states.items()
            if leadership is not None
        }

        return ClusterRead(
            brokers.brokers,
            {topic: node.partitions for topic, node in nodes.items()},
            leadership,
            marked.topics,
            {
                partition: reassignment
                for topic, node in nodes.items()
                for partition, reassignment in _reassignments(topic, node)
            },
            tool.targets,
            preferred.partitions,
            tuple(topic for topic, node in nodes.items() if node.topic_id is None),
        )

    # --- brokers, topics and states

    async def brokers(self) -> BrokersChanged:
        """Read the registered brokers with their epochs."""
        watch = EventWatch(self.put, WatchFired(ReadBrokers()))
        names = await self._children(BrokerId.directory(), watch)
        brokers = await self._read_all(BrokerId.ids_of(names), self._broker)
        return BrokersChanged(tuple(broker for broker in brokers.values() if broker is not None))

    async def topics(self) -> TopicsChanged:
        """Read the names of all topics."""
        watch = EventWatch(self.put, WatchFired(ReadTopics()))
        return TopicsChanged(tuple(await self._children(TopicAssignment.directory(), watch)))

    async def marked_for_deletion(self) -> TopicsMarkedForDeletion:
        """Read the names of the topics that have a marker."""
        watch = EventWatch(self.put, WatchFired(ReadDeletions()))
        return TopicsMarkedForDeletion(tuple(await self._children(DeleteTopic.directory(), watch)))

    async def assignments(self, topics: Iterable[str]) -> AssignmentsRead:
        """Read the replicas of these topics' partitions."""
        nodes = await self._read_all(topics, self._topic)
        return AssignmentsRead(
            {topic: node.partitions if node else None for topic, node in nodes.items()},
            tuple(topic for topic, node in nodes.items() if node and node.topic_id is None),
        )

    async def partition_states(self, partitions: Iterable[TopicPartition]) -> PartitionStatesRead:
        """Read the partitions' leaders and ISRs, with the versions of their nodes."""
        return PartitionStatesRead(await self._leaderships(partitions))

    async def leadership(self, partitions: Iterable[TopicPartition]) -> LeadershipRead:
        """Read the partitions' states, which their leaders may have changed."""
        return LeadershipRead(await self._leaderships(partitions))

    async def watched_leadership(self, partition: TopicPartition) -> LeadershipRead:
        """Read the state of one partition; the next change of it is an IsrChanged."""
        # Leaders leave notifications too, but some seconds later.
        watch = EventWatch(self.put, IsrChanged(partition))

        async def read(partition: TopicPartition) -> Leadership | None:
            path = PartitionState.path(*partition)
            return _leadership(await self._get(path, watch), path)

        return LeadershipRead(await self._read_all([partition], read))

    # --- tools' nodes and notifications

    async def reassignments(self) -> ReassignmentsRead:
        """Read the targets of the tool's reassignments."""
        node = await self._tool_node(ReassignPartitions, WatchFired(ReadReassignments()))
        targets = node.replicas if node else {}
        return ReassignmentsRead({TopicPartition(*key): targets[key] for key in targets})

    async def preferred_election(self) -> PreferredElectionRead:
        """Read the partitions whose preferred leaders the tool wants elected."""
        node = await self._tool_node(PreferredReplicaElection, WatchFired(ReadPreferredElection()))
        if node is None:
            return PreferredElectionRead(None)
        return PreferredElectionRead(tuple(TopicPartition(*key) for key in node.partitions))

    async def watch_notifications(self) -> None:
        """Set the watches on both kinds of notifications."""
        # The names are not needed: to list them sets the watch.
        for kind, read in ((LogDirEvent, ReadLogDirEvents()), (IsrChange, ReadIsrChanges())):
            await self._children(kind.directory(), EventWatch(self.put, WatchFired(read)))

    async def isr_changes(self) -> IsrChangesRead:
        """Read which ISRs changed."""
        paths, nodes = await self._notifications(IsrChange, ReadIsrChanges())

        # Each partition once, in the order of the notifications.
        partitions = dict.fromkeys(
            TopicPartition(*key) for node in nodes for key in node.partitions
        )
        return IsrChangesRead(paths, tuple(partitions))

    async def log_dir_events(self) -> LogDirEventsRead:
        """Read which brokers lost a disk."""
        paths, nodes = await self._notifications(LogDirEvent, ReadLogDirEvents())
        return LogDirEventsRead(paths, tuple(sorted({node.broker_id for node in nodes})))

    async def unclean_election(self, partitions: tuple[TopicPartition, ...]) -> UncleanElectionRead:
        """Read whether the partitions' topics allow unclean elections."""
        # The setting belongs to the topic: one read for all of its partitions.
        topics = {partition.topic for partition in partitions}
        return UncleanElectionRead(
            partitions, await self._read_all(sorted(topics), self._allows_unclean)
        )

    # --- nodes

    async def _broker(self, broker_id: int) -> RegisteredBroker | None:
        # A broker that changes its address writes this node.
        watch = EventWatch(self.put, WatchFired(ReadBrokers()))
        path = BrokerId.path(broker_id)
        node = await self._get(path, watch)
        if node is None:
            return None

        # The czxid is the broker epoch (KIP-380).
        data, stat = node
        broker = BrokerId.decode(data, path)
        return RegisteredBroker(broker_id, stat.czxid, tuple(broker.endpoints), broker.rack)

    async def _topic(self, topic: str) -> TopicAssignment | None:
        # CreatePartitions writes this node.
        watch = EventWatch(self.put, WatchFired(ReadAssignments((topic,))))
        path = TopicAssignment.path(topic)
        node = await self._get(path, watch)
        return TopicAssignment.decode(node[0], path) if node else None

    async def _leaderships(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Leadership | None]:
        """Read many states, a thousand in one request."""
        # No watches: a leader that changes its ISR also leaves a notification.
        requested = list(partitions)
        paths = [PartitionState.path(*partition) for partition in requested]
        nodes = await retry_until_connected(self.zk, lambda: self.zk.get_many(paths))

        leaderships: dict[TopicPartition, Leadership | None] = {}
        for partition, path, node in zip(requested, paths, nodes, strict=True):
            try:
                leaderships[partition] = _leadership(node, path)
            except ZnodeError as error:
                logger.error("left out %s: %s", partition, error)
        return leaderships

    async def _allows_unclean(self, topic: str) -> bool:
        path = EntityConfig.path("topics", topic)
        node = await self._get(path)
        try:
            value = EntityConfig.decode(node[0], path).config.get(UNCLEAN) if node else None
        except ZnodeError as error:
            logger.error("%s; no unclean election until the node is repaired", error)
            return False

        # The broker's setting is the default of all topics.
        return self.unclean_default if value is None else value.strip().lower() == "true"

    async def _tool_node(self, kind: type[T], event: Event) -> T | None:
        """Read the node in which a tool leaves its request; watch it even if it is missing."""
        path = kind.path()
        watch = EventWatch(self.put, event)

        # A read of a missing node leaves no watch, but `exists` does. If the node was created
        # between the two, read again.
        while (node := await self._get(path, watch)) is None:
            if not await retry_until_connected(self.zk, lambda: self.zk.exists(path, watch)):
                return None
        try:
            return kind.decode(node[0], path)
        except ZnodeError as error:
            logger.error("ignored: %s", error)
            return None

    async def _notifications(
        self, kind: type[N], read: ReadIsrChanges | ReadLogDirEvents
    ) -> tuple[tuple[str, ...], list[N]]:
        """Return the paths of all notifications of one kind, and those that can be parsed."""

        async def read_notification(path: str) -> N | None:
            node = await self._get(path)
            return kind.decode(node[0], path) if node else None

        directory = kind.directory()
        names = await self._children(directory, EventWatch(self.put, WatchFired(read)))
        # The names end in a sequence number: this is the order of creation.
        paths = tuple(f"{directory}/{name}" for name in sorted(names))
        nodes = await self._read_all(paths, read_notification)

        # A node that cannot be parsed keeps its path: it is deleted with the others.
        return paths, [node for node in nodes.values() if node is not None]

    async def _get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat] | None:
        return await retry_until_connected(self.zk, lambda: get_if_there(self.zk, path, watch))

    async def _children(self, path: str, watch: Watch) -> list[str]:
        names, _ = await retry_until_connected(self.zk, lambda: self.zk.children(path, watch))
        return names

    async def _read_all(self, keys: Iterable[K], read: Callable[[K], Awaitable[V]]) -> dict[K, V]:
        """Return `read(key)` for all keys, without those whose nodes cannot be parsed."""
        requested = list(keys)

        # With exceptions as results, all reads end before one of them is raised.
        results = await asyncio.gather(*(read(key) for key in requested), return_exceptions=True)

        values = {}
        for key, result in zip(requested, results, strict=True):
            if isinstance(result, ZnodeError):
                logger.error("left out %s: %s", key, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                values[key] = result
        return values


def _leadership(node: tuple[bytes | None, Stat] | None, path: str) -> Leadership | None:
    if node is None:
        return None
    data, stat = node
    return Leadership(PartitionState.decode(data, path), stat.version, stat.mzxid)


def _reassignments(topic: str, node: TopicAssignment) -> list[tuple[TopicPartition, Reassignment]]:
    """Return the reassignments that the topic's node describes."""
    reassignments = []
    for index, replicas in node.partitions.items():
        adding = node.adding.get(index, ())
        removing = node.removing.get(index, ())

        # KIP-455: `replicas` has both sets until the reassignment is completed.
        if adding or removing:
            original = tuple(replica for replica in replicas if replica not in adding)
            target = tuple(replica for replica in replicas if replica not in removing)
            partition = TopicPartition(topic, index)
            reassignments.append((partition, Reassignment(original, target)))
    return reassignments
