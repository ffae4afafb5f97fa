"""The controller's decision function: `decide(state, event, now_ms) -> effects`.

The order of the requests to a broker matters as much as their content. It follows Kafka's: a broker
learns which brokers live before it learns who leads, and a state is in ZooKeeper before any broker
sees it.

Nothing here depends on time. A controller that is not active ignores the events of an active one:
they were on their way when it resigned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker.controller import (
    brokers,
    controller_epoch,
    deletion,
    failover,
    notifications,
    partitions,
    preferred_election,
    reassignment,
    shutdown,
    topic_ids,
)
from broker.controller.effects import Effect
from broker.controller.events import (
    AssignmentsRead,
    AssignmentsWritten,
    BrokersChanged,
    ClusterRead,
    CompletedReassignmentsDue,
    ControllerMoved,
    DeletionRequested,
    Elected,
    ElectionDue,
    ElectionLost,
    ElectionRequested,
    ElectionRulesChanged,
    ElectionStep,
    Event,
    FailoverFailed,
    IsrChanged,
    IsrChangesRead,
    LeaderAndIsrResponseReceived,
    LeadershipRead,
    LogDirEventsRead,
    NewSession,
    PartitionsAffected,
    PartitionStatesRead,
    PartitionStatesWritten,
    PinningDue,
    PreferredElectionDue,
    PreferredElectionRead,
    ReassignmentRequested,
    ReassignmentsDue,
    ReassignmentsListed,
    ReassignmentsRead,
    ReassignmentStep,
    RetryDue,
    SessionExpired,
    ShutdownRequested,
    ShutdownStep,
    StopReplicaResponseReceived,
    TopicDeleted,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UncleanElectionRead,
    WatchFired,
)
from broker.controller.state import ControllerState


def decide(state: ControllerState, event: Event, now_ms: int) -> list[Effect]:
    """Change `state` by `event` and return the effects to perform, in order.

    No decision of the controller depends on the time so far: `now_ms` is there because all `decide`
    functions have one shape.
    """
    if type(event) in ON_ANY_BROKER:
        return ON_ANY_BROKER[type(event)](state, event)
    if state.is_active:
        return ON_THE_CONTROLLER[type(event)](state, event)
    return []


ON_ANY_BROKER: Mapping[type[Any], Callable[[ControllerState, Any], list[Effect]]] = {
    ElectionDue: controller_epoch.handle_election_due,
    NewSession: controller_epoch.handle_new_session,
    Elected: controller_epoch.handle_elected,
    ElectionLost: controller_epoch.handle_election_lost,
    SessionExpired: controller_epoch.resign,
}

ON_THE_CONTROLLER: Mapping[type[Any], Callable[[ControllerState, Any], list[Effect]]] = {
    # The controller's place, and the takeover of the cluster.
    ControllerMoved: controller_epoch.handle_controller_moved,
    FailoverFailed: controller_epoch.handle_failover_failed,
    WatchFired: failover.handle_watch_fired,
    RetryDue: failover.handle_retry_due,
    ClusterRead: failover.handle_cluster_read,
    # Brokers, topics and their states.
    BrokersChanged: brokers.handle_brokers_changed,
    PartitionsAffected: brokers.handle_partitions_affected,
    TopicsChanged: partitions.handle_topics_changed,
    AssignmentsRead: partitions.handle_assignments_read,
    PartitionStatesRead: partitions.handle_partition_states_read,
    UncleanElectionRead: partitions.handle_unclean_election_read,
    ElectionRulesChanged: partitions.handle_election_rules_changed,
    PartitionStatesWritten: partitions.handle_partition_states_written,
    PinningDue: topic_ids.handle_pinning_due,
    # Deletion of topics.
    DeletionRequested: deletion.handle_deletion_requested,
    TopicsMarkedForDeletion: deletion.handle_topics_marked_for_deletion,
    StopReplicaResponseReceived: deletion.handle_stop_replica_response_received,
    TopicDeleted: deletion.handle_topic_deleted,
    # Reassignments, by tool and by API.
    ReassignmentsRead: reassignment.handle_reassignments_read,
    ReassignmentRequested: reassignment.handle_reassignment_requested,
    ReassignmentsListed: reassignment.handle_reassignments_listed,
    ReassignmentsDue: reassignment.handle_reassignments_due,
    AssignmentsWritten: reassignment.handle_assignments_written,
    CompletedReassignmentsDue: reassignment.handle_completed_reassignments_due,
    IsrChanged: reassignment.handle_isr_changed,
    ReassignmentStep: reassignment.handle_reassignment_step,
    # Elections on request.
    PreferredElectionRead: preferred_election.handle_preferred_election_read,
    ElectionRequested: preferred_election.handle_election_requested,
    PreferredElectionDue: preferred_election.handle_preferred_election_due,
    ElectionStep: preferred_election.handle_election_step,
    # Brokers that are about to stop.
    ShutdownRequested: shutdown.handle_shutdown_requested,
    ShutdownStep: shutdown.handle_shutdown_step,
    # Reports of leaders and of brokers.
    IsrChangesRead: notifications.handle_isr_changes_read,
    LeadershipRead: notifications.handle_leadership_read,
    LogDirEventsRead: notifications.handle_log_dir_events_read,
    LeaderAndIsrResponseReceived: notifications.handle_leader_and_isr_response_received,
}
