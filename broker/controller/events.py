"""What happens to the controller: watches, requests, and what came of its effects."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from broker.controller.effects import Effect, PartitionStateWrite
from broker.controller.state import Leadership, LiveBroker
from protocol.topic_partition import TopicPartition


@attrs.frozen
class ElectionDue:
    """The broker started, or /controller came, changed or went."""


@attrs.frozen
class NewSession:
    """ZooKeeper gave a new session after the old one expired."""


@attrs.frozen
class Elected:
    """This broker is the controller of `epoch`; /controller_epoch is at version `zk_version`."""

    epoch: int
    zk_version: int


@attrs.frozen
class ElectionLost:
    """Broker `controller_id` is the controller; -1 when not even that is known."""

    controller_id: int


@attrs.frozen
class ControllerMoved:
    """/controller_epoch is not what this controller was elected with: another one reigns."""


@attrs.frozen
class SessionExpired:
    """The session and its /controller are gone. To be decided before anything of a new one."""


@attrs.frozen
class FailoverFailed:
    """Elected, but the cluster could not be read."""


@attrs.frozen
class WatchFired:
    """What was read by `read` is not so any more."""

    read: Effect


@attrs.frozen
class ClusterRead:
    """All that a newly elected controller must know."""

    brokers: tuple[LiveBroker, ...]
    assignments: Mapping[str, Mapping[int, tuple[int, ...]]]
    leadership: Mapping[TopicPartition, Leadership]
    marked_for_deletion: tuple[str, ...]


@attrs.frozen
class BrokersChanged:
    """All brokers that are registered now."""

    brokers: tuple[LiveBroker, ...]


@attrs.frozen
class TopicsChanged:
    """All topics that exist now."""

    topics: tuple[str, ...]


@attrs.frozen
class AssignmentsRead:
    """The replicas of these topics' partitions; None where a topic does not exist."""

    assignments: Mapping[str, Mapping[int, tuple[int, ...]] | None]


@attrs.frozen
class PartitionStatesRead:
    """The state of these partitions; None where there is none."""

    states: Mapping[TopicPartition, Leadership | None]


@attrs.frozen
class UncleanElectionRead:
    """Per topic, whether a replica out of sync may lead `partitions` when no other can."""

    partitions: tuple[TopicPartition, ...]
    allowed: Mapping[str, bool]


@attrs.frozen
class PartitionStatesWritten:
    """What was written, at which version; and whose node was not as expected."""

    written: tuple[tuple[PartitionStateWrite, int], ...]
    conflicts: tuple[TopicPartition, ...] = ()


@attrs.frozen
class DeletionRequested:
    """A client asks for the deletion of these topics."""

    topics: tuple[str, ...]


@attrs.frozen
class TopicsMarkedForDeletion:
    """All topics that have a marker now."""

    topics: tuple[str, ...]


@attrs.frozen
class StopReplicaAnswered:
    """The broker deleted these replicas, and failed to delete those."""

    broker_id: int
    deleted: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...] = ()


@attrs.frozen
class TopicDeleted:
    """Nothing is left of the topic in ZooKeeper."""

    topic: str


Event = (
    ElectionDue
    | NewSession
    | Elected
    | ElectionLost
    | ControllerMoved
    | SessionExpired
    | FailoverFailed
    | WatchFired
    | ClusterRead
    | BrokersChanged
    | TopicsChanged
    | AssignmentsRead
    | PartitionStatesRead
    | UncleanElectionRead
    | PartitionStatesWritten
    | DeletionRequested
    | TopicsMarkedForDeletion
    | StopReplicaAnswered
    | TopicDeleted
)
