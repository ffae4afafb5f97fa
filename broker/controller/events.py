"""The controller's input: watches, requests, and the results of its effects."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from broker.controller.effects import Effect, PartitionStateWrite
from broker.controller.state import Leadership, Reassignment, RegisteredBroker
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

# --- election, session and resignation -------------------------------------------------------


@frozen
class ElectionDue:
    """The broker started, or /controller was created, changed or deleted."""


@frozen
class NewSession:
    """ZooKeeper gave a new session after the old one expired."""


@frozen
class Elected:
    """This broker is the controller of `epoch`; /controller_epoch is at version `zk_version`."""

    epoch: int
    zk_version: int


@frozen
class ElectionLost:
    """Broker `controller_id` is the controller; -1 when not even that is known."""

    controller_id: int


@frozen
class ControllerMoved:
    """/controller_epoch is not the one that this controller was elected with: another one is.

    The new controller's epoch must be larger than `epoch`, as far as that is known.
    """

    epoch: int = 0


@frozen
class SessionExpired:
    """The session and its /controller are gone. Decide this before any event of a new session."""


@frozen
class FailoverFailed:
    """This broker was elected, but could not read the cluster."""


# --- nodes that changed, and another try -----------------------------------------------------


@frozen
class WatchFired:
    """The nodes that `read` read have changed."""

    read: Effect


@frozen
class RetryDue:
    """ZooKeeper refused `effect` a moment ago; it is time to try again."""

    effect: Effect


# --- the cluster as read from ZooKeeper ------------------------------------------------------


@frozen
class ClusterRead:
    """The whole cluster, as a newly elected controller reads it."""

    brokers: tuple[RegisteredBroker, ...]
    assignments: Mapping[str, Mapping[int, tuple[int, ...]]]
    leadership: Mapping[TopicPartition, Leadership]
    marked_for_deletion: tuple[str, ...]
    reassigning: Mapping[TopicPartition, Reassignment] = attrs.Factory(dict)  # in topics' nodes
    reassignments: Mapping[TopicPartition, tuple[int, ...]] = attrs.Factory(dict)  # in the tool's
    preferred_election: tuple[TopicPartition, ...] | None = None
    unpinned: tuple[str, ...] = ()  # topics without an id in their node


@frozen
class BrokersChanged:
    """All brokers that are registered now."""

    brokers: tuple[RegisteredBroker, ...]


@frozen
class TopicsChanged:
    """All topics that exist now."""

    topics: tuple[str, ...]


@frozen
class AssignmentsRead:
    """The replicas of these topics' partitions; None for a topic that does not exist."""

    assignments: Mapping[str, Mapping[int, tuple[int, ...]] | None]
    unpinned: tuple[str, ...] = ()  # topics without an id in their node


@frozen
class PartitionStatesRead:
    """The states of these partitions; None for one without a state."""

    states: Mapping[TopicPartition, Leadership | None]


@frozen
class UncleanElectionRead:
    """The topics of `partitions` are `allowed` unclean elections, or not."""

    partitions: tuple[TopicPartition, ...]
    allowed: Mapping[str, bool]


@frozen
class ElectionRulesChanged:
    """The setting that allows unclean elections may have changed, of one topic or of all (None)."""

    topic: str | None = None


@frozen
class PartitionStatesWritten:
    """The states that were written, each with its node's new version.

    The nodes of `conflicts` had another version than expected.
    """

    written: tuple[tuple[PartitionStateWrite, int], ...]
    conflicts: tuple[TopicPartition, ...] = ()


# --- deletion of topics ----------------------------------------------------------------------


@frozen
class DeletionRequested:
    """A client asks to delete these topics."""

    topics: tuple[str, ...]


@frozen
class TopicsMarkedForDeletion:
    """All topics that have a marker in /admin/delete_topics now."""

    topics: tuple[str, ...]


@frozen
class StopReplicaResponseReceived:
    """The broker deleted the replicas `deleted`, and failed to delete the replicas `failed`."""

    broker_id: int
    deleted: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...] = ()
    broker_epoch: int = attrs.field(default=-1, kw_only=True)


@frozen
class TopicDeleted:
    """Nothing of the topic is left in ZooKeeper."""

    topic: str


# --- notifications of leaders, brokers and tools ---------------------------------------------


@frozen
class IsrChangesRead:
    """Leaders changed the ISRs of these partitions, as the notifications at `paths` say."""

    paths: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


@frozen
class LogDirEventsRead:
    """Brokers lost log directories, as the notifications at `paths` say."""

    paths: tuple[str, ...]
    brokers: tuple[int, ...]


@frozen
class LeadershipRead:
    """The states of these partitions, which their leaders may have changed; None for no state."""

    states: Mapping[TopicPartition, Leadership | None]


@frozen
class LeaderAndIsrResponseReceived:
    """The broker has the logs of the replicas `taken`.

    The replicas `failed` are on disks that failed. The replicas `lost` have no log, although they
    are trusted to hold all acknowledged records; those that are also in `damaged` have a part of
    it.
    """

    broker_id: int
    taken: tuple[TopicPartition, ...]
    failed: tuple[TopicPartition, ...] = ()
    lost: tuple[TopicPartition, ...] = ()
    damaged: tuple[TopicPartition, ...] = ()
    broker_epoch: int = attrs.field(default=-1, kw_only=True)


@frozen
class ReassignmentsRead:
    """The targets in /admin/reassign_partitions: the replicas that a tool wants per partition."""

    targets: Mapping[TopicPartition, tuple[int, ...]]


@frozen
class PreferredElectionRead:
    """A tool wants preferred leaders elected for these partitions; None: there is no request."""

    partitions: tuple[TopicPartition, ...] | None


# --- steps of work that takes several decisions ----------------------------------------------


@frozen
class AssignmentsWritten:
    """ZooKeeper now has these replicas for the partitions."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]


@frozen
class CompletedReassignmentsDue:
    """It is time to write down the completed reassignments, if `resignations` is still the same."""

    resignations: int


@frozen
class ReassignmentsDue:
    """The reassignments of these partitions are to be started, or started again."""

    partitions: tuple[TopicPartition, ...]


@frozen
class ReassignmentStep:
    """Go on with a reassignment once the leader epoch is above `over_epoch`."""

    partition: TopicPartition
    over_epoch: int = -1


@frozen
class IsrChanged:
    """The state node of a partition that is being reassigned was written."""

    partition: TopicPartition


@frozen
class PreferredElectionDue:
    """It is time to look for preferred leaders that do not lead, if `resignations` is the same."""

    resignations: int


@frozen
class PinningDue:
    """It is time to pin the ids of these topics, if `resignations` is the same."""

    resignations: int
    topics: tuple[str, ...]


Verdict = tuple[ErrorCode, str]  # one partition's result, and the reason


@frozen
class ElectionStep:
    """Elect leaders for these partitions, until no more can be elected.

    Then reply to request `request_id`, with the verdicts in `refused` too, or delete the tool's
    node.
    """

    partitions: tuple[TopicPartition, ...]
    unclean: bool = False
    refused: Mapping[TopicPartition, Verdict] = attrs.Factory(dict)
    request_id: int | None = None
    by_tool: bool = False


@frozen
class ShutdownStep:
    """Move leadership off the broker. Reply to the request when no more can be moved."""

    request_id: int
    broker_id: int


@frozen
class PartitionsAffected:
    """A change of brokers, or a takeover, concerns these partitions, among many others.

    `left` are those with a replica on a broker that is gone, `new` the brokers that may not know
    yet what they lead and follow.
    """

    partitions: tuple[TopicPartition, ...]
    left: frozenset[TopicPartition]
    new: frozenset[int]


# --- requests: each gets one Reply. The shell gives out `request_id`. --------------------------


@frozen
class ShutdownRequested:
    """A broker wants to stop.

    The reply is the partitions that it still leads, or ApiError STALE_BROKER_EPOCH or
    BROKER_NOT_AVAILABLE.
    """

    broker_id: int
    broker_epoch: int = -1
    request_id: int = attrs.field(default=-1, kw_only=True)


@frozen
class ElectionRequested:
    """Elect the preferred leaders of these partitions (None: of all partitions).

    With `unclean`, elect any live replica for partitions without a leader. The reply maps each
    partition to a Verdict.
    """

    partitions: tuple[TopicPartition, ...] | None
    unclean: bool = False
    request_id: int = attrs.field(default=-1, kw_only=True)


@frozen
class ReassignmentRequested:
    """Reassign the partitions to these replicas (None: cancel). The reply: partition -> Verdict."""

    targets: Mapping[TopicPartition, tuple[int, ...] | None]
    request_id: int = attrs.field(default=-1, kw_only=True)


@frozen
class ReassignmentsListed:
    """List the reassignments of these partitions (None: all).

    The reply maps each partition to its replicas, those being added and those being removed.
    """

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
    | StopReplicaResponseReceived
    | TopicDeleted
    | IsrChangesRead
    | LogDirEventsRead
    | LeadershipRead
    | LeaderAndIsrResponseReceived
    | ReassignmentsRead
    | PreferredElectionRead
    | AssignmentsWritten
    | CompletedReassignmentsDue
    | ReassignmentsDue
    | ReassignmentStep
    | IsrChanged
    | PreferredElectionDue
    | PinningDue
    | ElectionStep
    | ShutdownStep
    | PartitionsAffected
    | ShutdownRequested
    | ElectionRequested
    | ReassignmentRequested
    | ReassignmentsListed
)
