"""What the controller does about each event: `decide(state, event) -> effects`.

The order of what a broker is told matters as much as what it is told. It follows Kafka's: first
who lives, then who leads; a state is in ZooKeeper before any broker hears of it.

Nothing here depends on time. An event that needs a reigning controller is ignored by one that
does not reign: it was on its way when the controller resigned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.controller import (
    brokers,
    deletion,
    failover,
    notifications,
    partitions,
    preferred_election,
    reassignment,
    reign,
    shutdown,
)
from broker.controller.effects import Effect
from broker.controller.events import (
    ArrivalsDue,
    AssignmentsRead,
    AssignmentsWritten,
    BrokersChanged,
    ClusterRead,
    ControllerMoved,
    DeletionRequested,
    Elected,
    Electing,
    ElectionDue,
    ElectionLost,
    ElectionRequested,
    ElectionRulesChanged,
    Event,
    FailoverFailed,
    InSyncSetChanged,
    IsrChangesRead,
    LeaderAndIsrAnswered,
    LeadershipRead,
    LogDirEventsRead,
    NewSession,
    PartitionStatesRead,
    PartitionStatesWritten,
    PreferredElectionDue,
    PreferredElectionRead,
    Reassigning,
    ReassignmentRequested,
    ReassignmentsDue,
    ReassignmentsListed,
    ReassignmentsRead,
    RetryDue,
    SessionExpired,
    ShutdownRequested,
    ShutdownUnderWay,
    StopReplicaAnswered,
    TopicDeleted,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UncleanElectionRead,
    WatchFired,
)
from broker.controller.state import ControllerState


def decide(state: ControllerState, event: Event) -> list[Effect]:
    """Change `state` by `event` and say what is to be done. Does nothing itself."""
    if type(event) in OF_ANY_BROKER:
        return OF_ANY_BROKER[type(event)](state, event)
    return OF_THE_CONTROLLER[type(event)](state, event) if state.is_active else []


OF_ANY_BROKER: Mapping[type[Any], Callable[[ControllerState, Any], list[Effect]]] = {
    ElectionDue: reign.election_due,
    NewSession: reign.new_session,
    Elected: reign.elected,
    ElectionLost: reign.election_lost,
    SessionExpired: reign.resign,
}

OF_THE_CONTROLLER: Mapping[type[Any], Callable[[ControllerState, Any], list[Effect]]] = {
    ControllerMoved: reign.controller_moved,
    FailoverFailed: reign.failover_failed,
    WatchFired: failover.watch_fired,
    RetryDue: failover.retry_due,
    ClusterRead: failover.cluster_read,
    BrokersChanged: brokers.brokers_changed,
    TopicsChanged: partitions.topics_changed,
    AssignmentsRead: partitions.assignments_read,
    PartitionStatesRead: partitions.states_read,
    UncleanElectionRead: partitions.unclean_election_read,
    ElectionRulesChanged: partitions.election_rules_changed,
    PartitionStatesWritten: partitions.states_written,
    DeletionRequested: deletion.requested,
    TopicsMarkedForDeletion: deletion.marked,
    StopReplicaAnswered: deletion.stop_replica_answered,
    TopicDeleted: deletion.topic_deleted,
    ReassignmentsRead: reassignment.asked_by_tool,
    ReassignmentRequested: reassignment.requested,
    ReassignmentsListed: reassignment.listed,
    ReassignmentsDue: reassignment.due,
    AssignmentsWritten: reassignment.assignments_written,
    ArrivalsDue: reassignment.arrivals_due,
    InSyncSetChanged: reassignment.in_sync_set_changed,
    Reassigning: reassignment.go_on,
    PreferredElectionRead: preferred_election.asked_by_tool,
    ElectionRequested: preferred_election.requested,
    PreferredElectionDue: preferred_election.due,
    Electing: preferred_election.electing,
    ShutdownRequested: shutdown.requested,
    ShutdownUnderWay: shutdown.under_way,
    IsrChangesRead: notifications.isr_changes_read,
    LeadershipRead: notifications.leadership_read,
    LogDirEventsRead: notifications.log_dir_events_read,
    LeaderAndIsrAnswered: notifications.leader_and_isr_answered,
}
