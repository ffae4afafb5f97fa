"""What the active controller knows of the cluster: Kafka's controller context.

Only `decide` changes it. Kafka keeps a state machine per partition and per replica beside the
facts; here the facts are enough, and the states of Kafka are read off them:

- a partition is *new* while it has an assignment and no leadership, *online* while its leader is
  a live broker, *offline* otherwise;
- a replica is *online* while its broker is live; a replica of a topic that is being deleted is
  in `TopicDeletion.asked`, `.deleted` or `.failed`, or its turn has not come.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

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
    """A partition's state node as last read or written, and the version the node had then."""

    state: PartitionState
    zk_version: int


@attrs.define(eq=False)
class TopicDeletion:
    """How far the deletion of a topic has come, replica by replica.

    Kafka: asked is DeletionStarted, deleted DeletionSuccessful, failed DeletionIneligible. A
    failed replica is tried again when its broker registers anew.
    """

    asked: set[Replica] = attrs.Factory(set)
    deleted: set[Replica] = attrs.Factory(set)
    failed: set[Replica] = attrs.Factory(set)

    def forget_answers_of(self, brokers: Collection[int]) -> None:
        """A broker that went or came will never answer what was asked of it before."""
        self.asked = {each for each in self.asked if each[1] not in brokers}
        self.failed = {each for each in self.failed if each[1] not in brokers}


@attrs.define(eq=False)
class ControllerState:
    """The context of the controller on broker `broker_id`, active or not."""

    broker_id: int
    delete_topic_enable: bool = True
    active_controller_id: int = -1
    is_active: bool = False
    is_loaded: bool = False  # active, and the cluster has been read
    reign: int = 0  # counts resignations: what was begun under another reign is void
    epoch: int = 0
    epoch_zk_version: int = -1
    brokers: dict[int, LiveBroker] = attrs.Factory(dict)
    assignments: dict[str, Mapping[int, tuple[int, ...]]] = attrs.Factory(dict)
    leadership: dict[TopicPartition, Leadership] = attrs.Factory(dict)
    deletions: dict[str, TopicDeletion] = attrs.Factory(dict)

    def resign(self) -> None:
        """Forget the cluster: another controller may be changing it from now on."""
        self.reign += 1
        self.active_controller_id = -1
        self.is_active = self.is_loaded = False
        self.epoch, self.epoch_zk_version = 0, -1
        for known in (self.brokers, self.assignments, self.leadership, self.deletions):
            known.clear()

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

    def partitions_on(self, brokers: Collection[int]) -> list[TopicPartition]:
        """The partitions that have a replica on one of these brokers."""
        return [
            TopicPartition(topic, index)
            for topic, assignment in self.assignments.items()
            for index, replicas in assignment.items()
            if any(replica in brokers for replica in replicas)
        ]

    def leaderless(self) -> list[TopicPartition]:
        """The partitions that are new or offline."""
        return [each for each in self.partitions() if not self.has_live_leader(each)]

    def has_live_leader(self, partition: TopicPartition) -> bool:
        """Whether the partition is online."""
        known = self.leadership.get(partition)
        return known is not None and known.state.leader in self.brokers

    def forget_topics(self, topics: Iterable[str]) -> None:
        """The topics are no more."""
        for topic in topics:
            for partition in self.partitions_of(topic):
                self.leadership.pop(partition, None)
            self.assignments.pop(topic, None)
            self.deletions.pop(topic, None)
