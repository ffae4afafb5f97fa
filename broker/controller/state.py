"""The active controller's picture of the cluster: Kafka's controller context.

Only `decide` changes it. Beside the facts stand the states of partitions and replicas, which
change only along the tables of `partition_states` and `replica_states`. These states say whether a
partition has a leader, and whether a replica may be asked to delete its log.

A broker is *live* while it is registered and not shutting down. One that is shutting down still
gets every request, but is elected nowhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import attrs

from broker.controller.partition_states import PARTITION_STATES, PartitionStatus
from broker.controller.replica_states import REPLICA_STATES, ReplicaStatus
from protocol.frozen import frozen
from protocol.special_values import NO_LEADER
from protocol.topic_partition import TopicPartition
from zk.znodes import Endpoint, PartitionState

Replica = tuple[TopicPartition, int]  # a partition, and the id of a broker that keeps it


@frozen
class RegisteredBroker:
    """A broker with a node in /brokers/ids. `epoch` is the node's czxid: a later registration has
    a larger one."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the broker's address under this listener name; None if it has no such listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@frozen
class Leadership:
    """A partition's state node as last read or written, and the version the node had then.

    `mzxid` is the transaction that wrote the node; -1 where it is not known.
    """

    state: PartitionState
    zk_version: int
    mzxid: int = attrs.field(default=-1, eq=False)


@frozen
class Reassignment:
    """A partition on its way from one set of replicas to another.

    `by_tool` is True for a reassignment from /admin/reassign_partitions, which holds it until it is
    completed. The topic's node holds all others (KIP-455).
    """

    original: tuple[int, ...]
    target: tuple[int, ...]
    by_tool: bool = False

    @property
    def replicas(self) -> tuple[int, ...]:
        """All replicas while the reassignment runs, the target's first."""
        return self.target + self.removing

    @property
    def adding(self) -> tuple[int, ...]:
        """The target's replicas that the partition did not have before."""
        return tuple(replica for replica in self.target if replica not in self.original)

    @property
    def removing(self) -> tuple[int, ...]:
        """The original replicas that are not in the target."""
        return tuple(replica for replica in self.original if replica not in self.target)

    def is_caught_up(self, isr: Collection[int]) -> bool:
        """True if the target can take over. A cancelled reassignment always can."""
        return not (self.adding or self.removing) or set(self.target) <= set(isr)


@frozen
class LeaderRebalance:
    """The settings of the automatic election of preferred leaders.

    Every `check_interval_ms`, a broker gets its preferred partitions back if other brokers lead
    more than `imbalance_percentage` % of them.
    """

    check_interval_ms: int = 300_000
    imbalance_percentage: int = 10


@attrs.define(eq=False)
class ControllerState:
    """The context of the controller on broker `broker_id`, active or not.

    - `resignations` counts how often this controller resigned. An event with another count was
      begun before a resignation, and is void.
    - `brokers` are the registered ones, `brokers_seen` all that were registered since the election.
    - `offline_dirs` has, per broker, the partitions whose replica is on a failed disk.
    - `lost_logs` has, per partition, the brokers that should have its log and do not. The replicas
      that are also in `damaged_logs` have a part of it.
    - `isr_before_election` has the previous ISR of partitions whose new leader has not confirmed
      yet that it leads.
    - `deletions` are the topics to delete, even if their deletion could not begin yet.
    - `completed_reassignments` are not yet written to ZooKeeper.
    """

    # This broker, and its settings.
    broker_id: int
    delete_topic_enable: bool = True
    rebalance: LeaderRebalance | None = None
    # The election.
    active_controller_id: int = -1
    is_active: bool = False
    is_loaded: bool = False  # active, and the cluster has been read
    resignations: int = 0
    epoch: int = 0
    epoch_zk_version: int = -1
    # Brokers, their disks, and the logs that they lack.
    brokers: dict[int, RegisteredBroker] = attrs.Factory(dict)
    brokers_seen: set[int] = attrs.Factory(set)
    shutting_down: set[int] = attrs.Factory(set)
    offline_dirs: dict[int, set[TopicPartition]] = attrs.Factory(dict)
    lost_logs: dict[TopicPartition, set[int]] = attrs.Factory(dict)
    damaged_logs: set[Replica] = attrs.Factory(set)
    isr_before_election: dict[TopicPartition, tuple[int, ...]] = attrs.Factory(dict)
    # Topics, partitions and replicas.
    assignments: dict[str, dict[int, tuple[int, ...]]] = attrs.Factory(dict)
    leadership: dict[TopicPartition, Leadership] = attrs.Factory(dict)
    partition_states: dict[TopicPartition, PartitionStatus] = attrs.Factory(dict)
    replica_states: dict[Replica, ReplicaStatus] = attrs.Factory(dict)
    # Work in progress.
    deletions: set[str] = attrs.Factory(set)
    reassignments: dict[TopicPartition, Reassignment] = attrs.Factory(dict)
    completed_reassignments: dict[TopicPartition, Reassignment] = attrs.Factory(dict)

    # --- resignation, and what always holds

    def resign(self) -> None:
        """Clear the context: another controller may change the cluster from now on."""
        self.resignations += 1
        self.active_controller_id = -1
        self.is_active = False
        self.is_loaded = False
        self.epoch = 0
        self.epoch_zk_version = -1
        for collection in self._collections():
            collection.clear()

    def check(self) -> None:
        """Assert what holds after each decision. For tests: this walks the whole context."""
        if not self.is_active:
            assert not self.is_loaded
            assert self.epoch == 0
            assert not any(self._collections()), "a controller that resigned knows nothing"
            return

        assert self.active_controller_id == self.broker_id
        assert self.epoch > 0
        self._check_brokers()
        self._check_partitions()
        self._check_reassignments()

    def _check_brokers(self) -> None:
        registered = self.brokers.keys()
        assert registered <= self.brokers_seen
        assert self.shutting_down <= registered
        assert self.offline_dirs.keys() <= registered

    def _check_partitions(self) -> None:
        partitions = set(self.partitions())
        assert self.partition_states.keys() <= partitions
        assert self.leadership.keys() <= partitions
        assert self.lost_logs.keys() <= partitions
        assert {partition for partition, _ in self.replica_states} <= partitions

        for partition, status in self.partition_states.items():
            leadership = self.leadership.get(partition)
            assert status is not PartitionStatus.NON_EXISTENT, f"{partition} is kept as absent"
            if status is PartitionStatus.NEW:
                assert leadership is None, f"{partition} is new, and has had a leader"
            if status is PartitionStatus.ONLINE and leadership is not None:
                assert leadership.state.leader != NO_LEADER, f"{partition} is online unled"

        for replica, replica_status in self.replica_states.items():
            assert replica_status is not ReplicaStatus.NON_EXISTENT, f"{replica} is kept as absent"

    def _check_reassignments(self) -> None:
        partitions = set(self.partitions())
        assert self.reassignments.keys() <= partitions
        assert self.reassignments.keys().isdisjoint(self.completed_reassignments)

    def _collections(self) -> tuple[dict[Any, Any] | set[Any], ...]:
        """All that the controller knows of the cluster."""
        return (
            self.brokers,
            self.brokers_seen,
            self.shutting_down,
            self.offline_dirs,
            self.lost_logs,
            self.damaged_logs,
            self.isr_before_election,
            self.assignments,
            self.leadership,
            self.partition_states,
            self.replica_states,
            self.deletions,
            self.reassignments,
            self.completed_reassignments,
        )

    # --- partitions and replicas

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the assigned replicas, the preferred leader first; () for an unknown partition."""
        return self.assignments.get(partition.topic, {}).get(partition.partition, ())

    def partitions(self) -> Iterator[TopicPartition]:
        """Yield every partition that has an assignment."""
        for topic in self.assignments:
            yield from self.partitions_of(topic)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of one topic, in the order of its assignment."""
        return [TopicPartition(topic, index) for index in self.assignments.get(topic, ())]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        """Return the replicas of these partitions."""
        return [
            (partition, broker_id)
            for partition in partitions
            for broker_id in self.replicas(partition)
        ]

    def replicas_on(self, brokers: Collection[int]) -> list[Replica]:
        """Return the replicas that these brokers keep."""
        if not brokers:
            return []
        return [
            (partition, broker_id)
            for partition, broker_id in self.replicas_of(self.partitions())
            if broker_id in brokers
        ]

    def is_registered(self, broker_id: int, broker_epoch: int) -> bool:
        """True if the broker is registered under this epoch; -1 stands for any epoch."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker_epoch in (-1, broker.epoch)

    # --- their states

    def is_alive(self, partition: TopicPartition, broker_id: int) -> bool:
        """True if the broker is registered and the replica's disk is not known to have failed."""
        return broker_id in self.brokers and partition not in self.offline_dirs.get(broker_id, ())

    def is_online(self, partition: TopicPartition, broker_id: int) -> bool:
        """True if the replica may lead and be in sync."""
        return self.is_alive(partition, broker_id) and broker_id not in self.shutting_down

    def confirmed_first(self, partition: TopicPartition) -> tuple[int, ...]:
        """Return the assigned replicas, those that are still new behind the others."""
        return tuple(
            sorted(
                self.replicas(partition),
                key=lambda broker_id: (
                    self.replica_status((partition, broker_id)) is ReplicaStatus.NEW
                ),
            )
        )

    def online_replicas(self, partition: TopicPartition, replicas: Iterable[int]) -> set[int]:
        """Return those of `replicas` that are online."""
        return {broker_id for broker_id in replicas if self.is_online(partition, broker_id)}

    def has_no_log(self, partition: TopicPartition) -> bool:
        """True if every replica of the partition has lost its log entirely."""
        # A damaged log is a log: its records can still be rescued.
        replicas = self.replicas(partition)
        lost = self.lost_logs.get(partition, set())
        return lost.issuperset(replicas) and self.damaged_logs.isdisjoint(
            (partition, broker_id) for broker_id in replicas
        )

    def leaderless_partitions(self) -> list[TopicPartition]:
        """Return the partitions that are new or offline."""
        without_leader = (PartitionStatus.NEW, PartitionStatus.OFFLINE)
        return [
            partition
            for partition, status in self.partition_states.items()
            if status in without_leader
        ]

    def status(self, partition: TopicPartition) -> PartitionStatus:
        """Return the state of the partition."""
        return self.partition_states.get(partition, PartitionStatus.NON_EXISTENT)

    def replica_status(self, replica: Replica) -> ReplicaStatus:
        """Return the state of the replica."""
        return self.replica_states.get(replica, ReplicaStatus.NON_EXISTENT)

    # --- changes

    def enter(self, partitions: Iterable[TopicPartition], target: PartitionStatus) -> None:
        """Move the partitions to `target`, as far as the table allows it."""
        PARTITION_STATES.enter(self.partition_states, partitions, target)

    def enter_replicas(self, replicas: Iterable[Replica], *targets: ReplicaStatus) -> None:
        """Move the replicas through `targets` in turn, as far as the table allows it."""
        # A replica that cannot take one step takes none of the next.
        for target in targets:
            replicas = REPLICA_STATES.enter(self.replica_states, replicas, target)

    def add_partitions(self, topic: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
        """Add new partitions to the topic."""
        self.assignments.setdefault(topic, {}).update(assignment)
        added = [TopicPartition(topic, index) for index in assignment]
        self.enter(added, PartitionStatus.NEW)
        self.enter_replicas(self.replicas_of(added), ReplicaStatus.NEW)

    def set_replicas(self, partition: TopicPartition, replicas: tuple[int, ...]) -> None:
        """Replace the assigned replicas of the partition."""
        assert partition.partition in self.assignments[partition.topic]
        self.assignments[partition.topic][partition.partition] = replicas

    def set_leadership(self, partition: TopicPartition, leadership: Leadership) -> None:
        """Take the partition's state node. The partition is online if its leader is alive."""
        self.leadership[partition] = leadership
        is_led = self.is_alive(partition, leadership.state.leader)
        self.enter([partition], PartitionStatus.ONLINE if is_led else PartitionStatus.OFFLINE)

    def forget_topics(self, topics: Iterable[str]) -> None:
        """Remove topics that no longer exist."""
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
                self.isr_before_election.pop(partition, None)

            for offline in self.offline_dirs.values():
                offline.difference_update(partitions)

            # Last, because partitions and replicas are found by it.
            self.assignments.pop(topic, None)
            self.deletions.discard(topic)
