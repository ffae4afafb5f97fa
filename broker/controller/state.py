"""What the active controller knows of the cluster: Kafka's controller context.

Only `decide` changes it. Beside the facts stand the states of partitions and replicas, which
change along the tables of `partition_states` and `replica_states` alone; whether a partition has
a leader, or a replica may be told to delete its log, is read off them.

A broker is *live* while it is registered and not shutting down; one that is shutting down is
told everything, and elected nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from broker.controller.partition_states import PARTITION_STATES, PartitionStatus
from broker.controller.replica_states import REPLICA_STATES, ReplicaStatus
from protocol.topic_partition import TopicPartition
from zk.znodes import Endpoint, PartitionState

NO_LEADER = -1

Replica = tuple[TopicPartition, int]  # a partition, and the id of a broker that keeps it


@attrs.frozen
class LiveBroker:
    """A registered broker. `epoch` is the czxid of its node: a larger one, a later registration."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where the broker listens under this listener name, if it does."""
        return next((each for each in self.endpoints if each.listener == listener), None)


@attrs.frozen
class Leadership:
    """A partition's state node as last read or written, and the version the node had then.

    `mzxid` is the transaction that wrote it; -1 where that was not read.
    """

    state: PartitionState
    zk_version: int
    mzxid: int = attrs.field(default=-1, eq=False)


@attrs.frozen
class Reassignment:
    """A partition on its way from one set of replicas to another.

    `by_tool`: asked for by /admin/reassign_partitions, which holds it until it is done; others
    (KIP-455) are held by the topic's node.
    """

    original: tuple[int, ...]
    target: tuple[int, ...]
    by_tool: bool = False

    @property
    def replicas(self) -> tuple[int, ...]:
        """All that keep the partition meanwhile, those it goes to first."""
        return self.target + self.removing

    @property
    def adding(self) -> tuple[int, ...]:
        """The replicas that are to come."""
        return tuple(each for each in self.target if each not in self.original)

    @property
    def removing(self) -> tuple[int, ...]:
        """The replicas that are to go."""
        return tuple(each for each in self.original if each not in self.target)

    def is_caught_up(self, isr: Collection[int]) -> bool:
        """Whether the target can take over; one that is cancelled has nobody to wait for."""
        return not (self.adding or self.removing) or set(self.target) <= set(isr)


@attrs.frozen
class LeaderRebalance:
    """Preferred leaders are elected each `check_interval_ms` where more than
    `imbalance_percentage` % of the partitions that prefer a broker are led by another."""

    check_interval_ms: int = 300_000
    imbalance_percentage: int = 10


@attrs.define(eq=False)
class ControllerState:
    """The context of the controller on broker `broker_id`, active or not.

    `brokers` has the registered ones, `brokers_seen` all there ever were in this reign;
    `offline_dirs`, per broker, the partitions whose replica is on a disk that failed; `lost_logs`,
    per partition, the brokers that should have its log and have not, or, if they are among the
    `damaged_logs`, not all of it; `heirs`, of partitions whose
    new leader has not said yet that it leads, those in sync before it was elected. `deletions`
    are the topics that are to be deleted, whether or not that could begin; `arrived` are partitions
    on their targets, which ZooKeeper is about to be told.
    """

    broker_id: int
    delete_topic_enable: bool = True
    rebalance: LeaderRebalance | None = None
    active_controller_id: int = -1
    is_active: bool = False
    is_loaded: bool = False  # active, and the cluster has been read
    reign: int = 0  # counts resignations: what was begun under another reign is void
    epoch: int = 0
    epoch_zk_version: int = -1
    brokers: dict[int, LiveBroker] = attrs.Factory(dict)
    brokers_seen: set[int] = attrs.Factory(set)
    shutting_down: set[int] = attrs.Factory(set)
    offline_dirs: dict[int, set[TopicPartition]] = attrs.Factory(dict)
    lost_logs: dict[TopicPartition, set[int]] = attrs.Factory(dict)
    damaged_logs: set[Replica] = attrs.Factory(set)
    heirs: dict[TopicPartition, tuple[int, ...]] = attrs.Factory(dict)
    assignments: dict[str, dict[int, tuple[int, ...]]] = attrs.Factory(dict)
    leadership: dict[TopicPartition, Leadership] = attrs.Factory(dict)
    partition_states: dict[TopicPartition, PartitionStatus] = attrs.Factory(dict)
    replica_states: dict[Replica, ReplicaStatus] = attrs.Factory(dict)
    deletions: set[str] = attrs.Factory(set)
    reassignments: dict[TopicPartition, Reassignment] = attrs.Factory(dict)
    arrived: dict[TopicPartition, Reassignment] = attrs.Factory(dict)

    def resign(self) -> None:
        """Forget the cluster: another controller may be changing it from now on."""
        self.reign += 1
        self.active_controller_id = -1
        self.is_active = self.is_loaded = False
        self.epoch, self.epoch_zk_version = 0, -1
        for known in (
            self.brokers,
            self.brokers_seen,
            self.shutting_down,
            self.offline_dirs,
            self.lost_logs,
            self.damaged_logs,
            self.heirs,
            self.assignments,
            self.leadership,
            self.partition_states,
            self.replica_states,
            self.deletions,
            self.reassignments,
            self.arrived,
        ):
            known.clear()

    # --- which partitions and replicas there are

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The assigned replicas, preferred leader first; none when the partition is unknown."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, ())

    def partitions(self) -> Iterator[TopicPartition]:
        """Every partition that has an assignment."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """The partitions of one topic, in the order of its assignment."""
        return [TopicPartition(topic, index) for index in self.assignments.get(topic, ())]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        """The replicas of these partitions."""
        return [(each, broker_id) for each in partitions for broker_id in self.replicas(each)]

    def replicas_on(self, brokers: Collection[int]) -> list[Replica]:
        """The replicas that these brokers keep."""
        return [each for each in self.replicas_of(self.partitions()) if each[1] in brokers]

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this is still the broker's registration; -1 is any."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker_epoch in (-1, broker.epoch)

    # --- how they are

    def is_alive(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether the broker is registered and its disk, as far as is known, works."""
        return broker_id in self.brokers and partition not in self.offline_dirs.get(broker_id, ())

    def is_online(self, partition: TopicPartition, broker_id: int) -> bool:
        """Whether the replica may lead, and be in sync."""
        return self.is_alive(partition, broker_id) and broker_id not in self.shutting_down

    def online(self, partition: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Those of `replicas` that are online."""
        return {each for each in replicas if self.is_online(partition, each)}

    def is_nowhere(self, partition: TopicPartition) -> bool:
        """Whether no replica of the partition has a log."""
        replicas = self.replicas(partition)
        return self.lost_logs.get(partition, set()).issuperset(
            replicas
        ) and self.damaged_logs.isdisjoint((partition, each) for each in replicas)

    def leaderless(self) -> list[TopicPartition]:
        """The partitions that are new or offline."""
        waiting = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        return [each for each, status in self.partition_states.items() if status in waiting]

    def status(self, partition: TopicPartition) -> PartitionStatus:
        """The state the partition is in."""
        return self.partition_states.get(partition, PartitionStatus.NON_EXISTENT)

    def replica_status(self, replica: Replica) -> ReplicaStatus:
        """The state the replica is in."""
        return self.replica_states.get(replica, ReplicaStatus.NON_EXISTENT)

    # --- how they change

    def enter(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Put the partitions into a state, those that may go there."""
        PARTITION_STATES.enter(self.partition_states, partitions, target)

    def enter_replicas(self, replicas: Iterable[Replica], *targets: ReplicaStatus) -> None:
        """Put the replicas into these states, one after the other, those that may go there."""
        for target in targets:
            replicas = REPLICA_STATES.enter(self.replica_states, replicas, target)

    def add_partitions(self, topic: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
        """The topic has these partitions too, and they are new."""
        self.assignments.setdefault(topic, {}).update(assignment)
        added = [TopicPartition(topic, index) for index in assignment]
        self.enter(added, PartitionStatus.NEW)
        self.enter_replicas(self.replicas_of(added), ReplicaStatus.NEW)

    def set_replicas(self, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        """The partition is kept by these replicas now."""
        self.assignments[partition.topic][partition.partition] = replicas

    def learn(self, partition: TopicPartition, known: Leadership) -> None:
        """The partition's state node is known; whether its leader is there decides its state."""
        self.leadership[partition] = known
        is_led = self.is_alive(partition, known.state.leader)
        self.enter([partition], PartitionStatus.ONLINE if is_led else PartitionStatus.OFFLINE)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """The topics are no more."""
        for topic in topics:
            partitions = self.partitions_of(topic)
            for replica in self.replicas_of(partitions):
                self.replica_states.pop(replica, None)
                self.damaged_logs.discard(replica)
            for partition in partitions:
                self.leadership.pop(partition, None)
                self.partition_states.pop(partition, None)
                self.reassignments.pop(partition, None)
                self.lost_logs.pop(partition, None)
                self.heirs.pop(partition, None)
            for offline in self.offline_dirs.values():
                offline.difference_update(partitions)
            self.assignments.pop(topic, None)
            self.deletions.discard(topic)
