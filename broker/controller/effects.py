"""The controller's output. Each effect is a value, and the shell performs it.

An effect that asks ZooKeeper for something returns the event named in its docstring. The shell
decides that event before it performs the next effect of the same list. So a list of effects reads
as a procedure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.controller.state import Leadership, RegisteredBroker
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState

if TYPE_CHECKING:
    from broker.controller.events import Event


# --- registration and election ---------------------------------------------------------------


@frozen
class RegisterBroker:
    """Create /brokers/ids/<own id> again, for the new session."""


@frozen
class Elect:
    """Find the controller, or become it if there is none: Elected or ElectionLost.

    The new epoch is larger than `beyond`, whatever /controller_epoch holds.
    """

    beyond: int = 0


@frozen
class StepDown:
    """Delete /controller, unless /controller_epoch has moved on from `epoch_zk_version`."""

    epoch_zk_version: int


# --- reads of the cluster, most of them with a watch -----------------------------------------


@frozen
class ReadCluster:
    """Read and watch the whole cluster: ClusterRead."""


@frozen
class ReadBrokers:
    """Read /brokers/ids and watch it: BrokersChanged."""


@frozen
class ReadTopics:
    """List /brokers/topics and watch it: TopicsChanged."""


@frozen
class ReadAssignments:
    """Read the nodes of these topics and watch them: AssignmentsRead."""

    topics: tuple[str, ...]


@frozen
class ReadDeletions:
    """List /admin/delete_topics and watch it: TopicsMarkedForDeletion."""


@frozen
class ReadPartitionStates:
    """Read these partitions' state nodes: PartitionStatesRead."""

    partitions: tuple[TopicPartition, ...]


@frozen
class ReadUncleanElection:
    """Read whether the topics of these partitions allow unclean elections: UncleanElectionRead."""

    partitions: tuple[TopicPartition, ...]


@frozen
class RefreshLeadership:
    """Read these partitions' state nodes, which their leaders may have changed: LeadershipRead."""

    partitions: tuple[TopicPartition, ...]


@frozen
class WatchLeadership:
    """Read and watch the state node of a partition that is being reassigned: LeadershipRead."""

    partition: TopicPartition


@frozen
class ReadReassignments:
    """Read /admin/reassign_partitions and watch it: ReassignmentsRead."""


@frozen
class ReadPreferredElection:
    """Read /admin/preferred_replica_election and watch it: PreferredElectionRead."""


@frozen
class ReadIsrChanges:
    """List and read /isr_change_notification and watch it: IsrChangesRead."""


@frozen
class ReadLogDirEvents:
    """List and read /log_dir_event_notification and watch it: LogDirEventsRead."""


# --- notifications of leaders and brokers ----------------------------------------------------


@frozen
class ClearNotifications:
    """Watch both kinds of notifications, and delete the existing ones."""


@frozen
class DeleteNotifications:
    """Delete these notifications."""

    paths: tuple[str, ...]


# --- replicas, and the nodes of tools --------------------------------------------------------


@frozen
class AssignmentWrite:
    """A partition's replicas, and those of them that are being added and removed."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@frozen
class WriteAssignments:
    """Write these assignments into their topics' nodes, each node once: AssignmentsWritten.

    All other content of the nodes stays.
    """

    writes: tuple[AssignmentWrite, ...]


@frozen
class DeleteToolReassignments:
    """Remove these partitions from /admin/reassign_partitions. The last one deletes the node."""

    partitions: tuple[TopicPartition, ...]


@frozen
class DeletePreferredElection:
    """Delete /admin/preferred_replica_election after its elections were tried."""


# --- states of partitions --------------------------------------------------------------------


@frozen
class PartitionStateWrite:
    """A state to write over version `zk_version` of the node; None creates the node."""

    partition: TopicPartition
    state: PartitionState
    zk_version: int | None


@frozen
class WritePartitionStates:
    """Write these states, each under its own condition: PartitionStatesWritten."""

    writes: tuple[PartitionStateWrite, ...]


# --- deletion of topics ----------------------------------------------------------------------


@frozen
class MarkForDeletion:
    """Create the markers of these topics in /admin/delete_topics."""

    topics: tuple[str, ...]


@frozen
class DeleteMarkers:
    """Delete the markers of these topics from /admin/delete_topics."""

    topics: tuple[str, ...]


@frozen
class DeleteTopicZnodes:
    """Delete all nodes of the topic, its marker last: TopicDeleted."""

    topic: str


# --- requests to brokers ---------------------------------------------------------------------


@frozen
class OpenChannel:
    """Open a channel to this registration of the broker, or move the one there is."""

    broker: RegisteredBroker


@frozen
class CloseChannel:
    """Close the broker's channel and discard its unsent requests."""

    broker_id: int


@frozen
class CloseChannels:
    """Close every channel, and refuse the requests that still wait for a reply."""


@frozen
class LeaderAndIsrPartition:
    """A partition in a LeaderAndIsr request."""

    partition: TopicPartition
    leadership: Leadership
    replicas: tuple[int, ...]
    is_new: bool = False


@frozen
class SendLeaderAndIsr:
    """Send the broker the partitions that it leads or follows."""

    broker_id: int
    partitions: tuple[LeaderAndIsrPartition, ...]
    live_leaders: tuple[RegisteredBroker, ...]


@frozen
class PartitionMetadata:
    """A partition in an UpdateMetadata request."""

    partition: TopicPartition
    leadership: Leadership
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    is_being_deleted: bool = False


@frozen
class SendUpdateMetadata:
    """Send each broker all live brokers, and the states of these partitions."""

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionMetadata, ...]
    live_brokers: tuple[RegisteredBroker, ...]


@frozen
class SendStopReplica:
    """Have the broker stop these replicas. With `delete` it deletes their logs too, and
    StopReplicaResponseReceived follows later."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    delete: bool = True


# --- effects for this controller itself ------------------------------------------------------


@frozen
class PinTopicIds:
    """Write their ids into the znodes of those of these topics that have none."""

    topics: tuple[str, ...]


@frozen
class SetTimer:
    """Deliver the event after `delay_ms`."""

    event: Event
    delay_ms: int


@frozen
class Reply:
    """Reply to the request of this id; an ApiError refuses it."""

    request_id: int
    value: Any


@frozen
class Repeat:
    """Decide this event, after everything that followed from the effects before this one."""

    event: Event


Effect = (
    RegisterBroker
    | Elect
    | StepDown
    | ReadCluster
    | ReadBrokers
    | ReadTopics
    | ReadAssignments
    | ReadDeletions
    | ReadPartitionStates
    | ReadUncleanElection
    | RefreshLeadership
    | WatchLeadership
    | ReadReassignments
    | ReadPreferredElection
    | ReadIsrChanges
    | ReadLogDirEvents
    | ClearNotifications
    | DeleteNotifications
    | WriteAssignments
    | DeleteToolReassignments
    | DeletePreferredElection
    | WritePartitionStates
    | MarkForDeletion
    | DeleteMarkers
    | DeleteTopicZnodes
    | OpenChannel
    | CloseChannel
    | CloseChannels
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
    | PinTopicIds
    | SetTimer
    | Reply
    | Repeat
)
