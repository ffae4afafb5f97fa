"""What happens to the controller: watches, requests, and what came of its effects."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from broker.controller.effects import Effect, PartitionStateWrite
from broker.controller.state import Leadership, LiveBroker, Reassignment
from protocol.errors import ErrorCode
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
    """/controller_epoch is not what this controller was elected with: another one reigns.

    `epoch` is what it must be larger than, as far as that was found.
    """

    epoch: int = 0


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
class RetryDue:
    """ZooKeeper refused `effect` a moment ago, and may not any more."""

    effect: Effect


@attrs.frozen
class ClusterRead:
    """All that a newly elected controller must know."""

    brokers: tuple[LiveBroker, ...]
    assignments: Mapping[str, Mapping[int, tuple[int, ...]]]
    leadership: Mapping[TopicPartition, Leadership]
    marked_for_deletion: tuple[str, ...]
    reassigning: Mapping[TopicPartition, Reassignment] = attrs.Factory(dict)  # by the topics' nodes
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = attrs.Factory(dict)  # by the tool's
    preferred_election: tuple[TopicPartition, ...] | None = None


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
class ElectionRulesChanged:
    """The settings of a topic, or of the broker for all (None), that say whether who is out of
    sync may lead, may have changed."""

    topic: str | None = None


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
    broker_epoch: int = attrs.field(default=-1, kw_only=True)


@attrs.frozen
class TopicDeleted:
    """Nothing is left of the topic in ZooKeeper."""

    topic: str


# --- what leaders, brokers and tools tell ----------------------------------------------------


@attrs.frozen
class IsrChangesRead:
    """Leaders changed the in-sync sets of these partitions, say the nodes at `paths`."""

    paths: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class LogDirEventsRead:
    """Brokers lost log directories, say the nodes at `paths`."""

    paths: tuple[str, ...]
    brokers: tuple[int, ...]


@attrs.frozen
class LeadershipRead:
    """How these partitions are led, as their leaders have it; None where there is no state."""

    states: Mapping[TopicPartition, Leadership | None]


@attrs.frozen
class LeaderAndIsrAnswered:
    """The broker has the logs of the replicas `taken`; those `failed` are on disks that failed,
    and those `lost` on none, though they are trusted to have what was acknowledged. Of those lost,
    the `damaged` have some of it."""

    broker_id: int
    taken: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    damaged: tuple[TopicPartition, ...] = ()
    broker_epoch: int = attrs.field(default=-1, kw_only=True)


@attrs.frozen
class ReassignmentsRead:
    """Where a tool wants these partitions' replicas."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@attrs.frozen
class PreferredElectionRead:
    """A tool wants these partitions led by their preferred leaders; None: it wants nothing."""

    partitions: tuple[TopicPartition, ...] | None


# --- steps of what takes several -------------------------------------------------------------


@attrs.frozen
class AssignmentsWritten:
    """ZooKeeper has these replicas for the partitions."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]


@attrs.frozen
class ArrivalsDue:
    """What arrived in this reign is to be written down."""

    reign: int


@attrs.frozen
class ReassignmentsDue:
    """These partitions' reassignments are to be begun, or begun again."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class Reassigning:
    """Go on with a reassignment, after the leader epoch has been raised above `over_epoch`."""

    partition: TopicPartition
    over_epoch: int = -1


@attrs.frozen
class InSyncSetChanged:
    """The state node of a partition on the move was written."""

    partition: TopicPartition


@attrs.frozen
class PreferredElectionDue:
    """It is time to look for preferred leaders that do not lead, if `reign` is still the same."""

    reign: int


Verdict = tuple[ErrorCode, str]  # of one partition, and why


@attrs.frozen
class Electing:
    """Elect leaders for these partitions until nothing more can be done.

    Then answer request `request_id`, to which belong the `refused` too, or tell the tool.
    """

    partitions: tuple[TopicPartition, ...]
    unclean: bool = False
    refused: Mapping[TopicPartition, Verdict] = attrs.Factory(dict)
    request_id: int | None = None
    by_tool: bool = False


@attrs.frozen
class ShutdownUnderWay:
    """Move what can be moved off the broker; when all is, answer the request."""

    request_id: int
    broker_id: int


# --- requests: each is answered by an Answer. `request_id` is given to it by the shell. -------


@attrs.frozen
class ShutdownRequested:
    """A broker wants to stop: the set of partitions it leads still, or ApiError
    STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE."""

    broker_id: int
    broker_epoch: int = -1
    request_id: int = attrs.field(default=-1, kw_only=True)


@attrs.frozen
class ElectionRequested:
    """Elect the preferred leaders of these partitions (None: of all), or with `unclean` any
    leader at all for those that have none: partition -> Verdict."""

    partitions: tuple[TopicPartition, ...] | None
    unclean: bool = False
    request_id: int = attrs.field(default=-1, kw_only=True)


@attrs.frozen
class ReassignmentRequested:
    """Move the partitions to these replicas (None: stop moving): partition -> Verdict."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    request_id: int = attrs.field(default=-1, kw_only=True)


@attrs.frozen
class ReassignmentsListed:
    """Tell what is moving among these partitions (None: all): partition -> Reassignment."""

    partitions: tuple[TopicPartition, ...] | None = None
    request_id: int = attrs.field(default=-1, kw_only=True)


Request = ShutdownRequested | ElectionRequested | ReassignmentRequested | ReassignmentsListed

Event = (
    ElectionDue
    | NewSession
    | Elected
    | ElectionLost
    | ControllerMoved
    | SessionExpired
    | FailoverFailed
    | WatchFired
    | RetryDue
    | ClusterRead
    | BrokersChanged
    | TopicsChanged
    | AssignmentsRead
    | PartitionStatesRead
    | UncleanElectionRead
    | ElectionRulesChanged
    | PartitionStatesWritten
    | DeletionRequested
    | TopicsMarkedForDeletion
    | StopReplicaAnswered
    | TopicDeleted
    | IsrChangesRead
    | LogDirEventsRead
    | LeadershipRead
    | LeaderAndIsrAnswered
    | ReassignmentsRead
    | PreferredElectionRead
    | AssignmentsWritten
    | ArrivalsDue
    | ReassignmentsDue
    | Reassigning
    | InSyncSetChanged
    | PreferredElectionDue
    | Electing
    | ShutdownUnderWay
    | ShutdownRequested
    | ElectionRequested
    | ReassignmentRequested
    | ReassignmentsListed
)
