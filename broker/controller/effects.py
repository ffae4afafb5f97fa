"""What the controller wants done. Each effect is a value; the shell performs it.

Effects that ask something of ZooKeeper come back as the event named in their docstring, and
that event is decided before the next effect of the same list is performed. So a list of effects
reads as a procedure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from broker.controller.state import Leadership, LiveBroker
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState

if TYPE_CHECKING:
    from broker.controller.events import Event


@attrs.frozen
class RegisterBroker:
    """Put /brokers/ids/<own id> back for the new session."""


@attrs.frozen
class Elect:
    """See who the controller is, and become it if nobody is: Elected or ElectionLost.

    The epoch is larger than `beyond`, whatever /controller_epoch says.
    """

    beyond: int = 0


@attrs.frozen
class StepDown:
    """Delete /controller, unless /controller_epoch has moved on from `epoch_zk_version`."""

    epoch_zk_version: int


@attrs.frozen
class ReadCluster:
    """Read all that the context holds and watch it: ClusterRead."""


@attrs.frozen
class ReadBrokers:
    """Read /brokers/ids and watch it: BrokersChanged."""


@attrs.frozen
class ReadTopics:
    """List /brokers/topics and watch it: TopicsChanged."""


@attrs.frozen
class ReadAssignments:
    """Read the nodes of these topics and watch them: AssignmentsRead."""

    topics: tuple[str, ...]


@attrs.frozen
class ReadDeletions:
    """List /admin/delete_topics and watch it: TopicsMarkedForDeletion."""


@attrs.frozen
class ReadPartitionStates:
    """Read these partitions' state nodes: PartitionStatesRead."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class ReadUncleanElection:
    """Read whether the topics of these partitions allow unclean elections: UncleanElectionRead."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class RefreshLeadership:
    """Read these partitions' state nodes, which their leaders changed: LeadershipRead."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class WatchLeadership:
    """Read the state node of a partition on the move, and watch it: LeadershipRead."""

    partition: TopicPartition


@attrs.frozen
class ReadReassignments:
    """Read /admin/reassign_partitions and watch it: ReassignmentsRead."""


@attrs.frozen
class ReadPreferredElection:
    """Read /admin/preferred_replica_election and watch it: PreferredElectionRead."""


@attrs.frozen
class ReadIsrChanges:
    """List and read /isr_change_notification and watch it: IsrChangesRead."""


@attrs.frozen
class ReadLogDirEvents:
    """List and read /log_dir_event_notification and watch it: LogDirEventsRead."""


@attrs.frozen
class ClearNotifications:
    """Watch both kinds of notifications, and delete those that are there."""


@attrs.frozen
class DeleteNotifications:
    """Delete these notifications."""

    paths: tuple[str, ...]


@attrs.frozen
class AssignmentWrite:
    """A partition's replicas, those of them that come and those that go."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@attrs.frozen
class WriteAssignments:
    """Write these into their topics' nodes, each node once: AssignmentsWritten.

    What else is in the nodes stays as it is.
    """

    writes: tuple[AssignmentWrite, ...]


@attrs.frozen
class DropReassignments:
    """Take these partitions out of /admin/reassign_partitions, and the node with the last."""

    partitions: tuple[TopicPartition, ...]


@attrs.frozen
class DeletePreferredElection:
    """Delete /admin/preferred_replica_election: what it asked for was tried."""


@attrs.frozen
class PartitionStateWrite:
    """A state to write over version `zk_version` of the node; None creates the node."""

    partition: TopicPartition
    state: PartitionState
    zk_version: int | None


@attrs.frozen
class WritePartitionStates:
    """Write these states, each on its own condition: PartitionStatesWritten."""

    writes: tuple[PartitionStateWrite, ...]


@attrs.frozen
class MarkForDeletion:
    """Create the markers of these topics in /admin/delete_topics."""

    topics: tuple[str, ...]


@attrs.frozen
class DeleteMarkers:
    """Delete the markers of these topics from /admin/delete_topics."""

    topics: tuple[str, ...]


@attrs.frozen
class DeleteTopicZnodes:
    """Delete all that ZooKeeper has of the topic, its marker last: TopicDeleted."""

    topic: str


@attrs.frozen
class OpenChannel:
    """Be ready to send requests to this registration of the broker."""

    broker: LiveBroker


@attrs.frozen
class CloseChannel:
    """Drop what has not been sent to the broker yet."""

    broker_id: int


@attrs.frozen
class CloseChannels:
    """Drop every channel, and refuse the requests that wait for an answer."""


@attrs.frozen
class LedPartition:
    """One partition in a LeaderAndIsr request."""

    partition: TopicPartition
    leadership: Leadership
    replicas: tuple[int, ...]
    is_new: bool = False


@attrs.frozen
class SendLeaderAndIsr:
    """Tell the broker which of these partitions it leads and which it follows."""

    broker_id: int
    partitions: tuple[LedPartition, ...]
    live_leaders: tuple[LiveBroker, ...]


@attrs.frozen
class PartitionMetadata:
    """One partition in an UpdateMetadata request."""

    partition: TopicPartition
    leadership: Leadership
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    is_being_deleted: bool = False


@attrs.frozen
class SendUpdateMetadata:
    """Tell each broker which brokers live (all of them) and how these partitions are."""

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionMetadata, ...]
    live_brokers: tuple[LiveBroker, ...]


@attrs.frozen
class SendStopReplica:
    """Make the broker drop these replicas, with `delete` their logs too: then, later,
    StopReplicaAnswered."""

    broker_id: int
    partitions: tuple[TopicPartition, ...]
    delete: bool = True


@attrs.frozen
class SetTimer:
    """Deliver the event after `delay_ms`."""

    event: Event
    delay_ms: int


@attrs.frozen
class Answer:
    """What the request of this id comes to; an ApiError refuses it."""

    request_id: int
    value: Any


@attrs.frozen
class Repeat:
    """Decide this event again, after all that came of the effects before this one."""

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
    | DropReassignments
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
    | SetTimer
    | Answer
    | Repeat
)
