"""Delete topics, although brokers come and go meanwhile.

First every broker removes the topic from its metadata (leader -2). Then each replica's broker
deletes the log. Then ZooKeeper's nodes are deleted. A replica on a dead broker holds up only the
last step: its broker is asked when it is back, and until then the name stays taken. Otherwise a log
that turns up later under a new topic of the same name would be served as that topic's.

A topic with a partition that is being reassigned waits until the reassignment is completed, because
its replicas are not known for certain before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller.announcement import describe, stop
from broker.controller.effects import (
    DeleteMarkers,
    DeleteTopicZnodes,
    Effect,
    MarkForDeletion,
    ReadAssignments,
)
from broker.controller.events import (
    DeletionRequested,
    StopReplicaResponseReceived,
    TopicDeleted,
    TopicsMarkedForDeletion,
)
from broker.controller.partition_states import PartitionStatus
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Replica

# The states of replicas whose broker was not asked to delete the log, or may be asked again.
NOT_ASKED = {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE}


def handle_deletion_requested(state: ControllerState, event: DeletionRequested) -> list[Effect]:
    """Write the marker, by which a controller that is elected meanwhile finds the request."""
    return [MarkForDeletion(event.topics)]


def handle_topics_marked_for_deletion(
    state: ControllerState, event: TopicsMarkedForDeletion
) -> list[Effect]:
    """Start the deletion of topics with a new marker.

    An unknown topic may have been created just now. So it is read before its marker is deleted.
    """
    # With delete.topic.enable=false a request is removed, as in Kafka.
    if not state.delete_topic_enable:
        return [DeleteMarkers(event.topics)] if event.topics else []

    # The event lists all markers, also of deletions that run.
    new = [topic for topic in event.topics if topic not in state.deletions]
    state.deletions.update(new)
    effects = [effect for topic in new for effect in resume_deletion(state, topic)]

    unknown = tuple(topic for topic in new if topic not in state.assignments)
    if unknown:
        effects.append(ReadAssignments(unknown))
    return effects


def resume_deletion(state: ControllerState, topic: str) -> list[Effect]:
    """Take the next steps of the topic's deletion.

    Hide the topic, and have live brokers delete replicas that they have not been asked to delete.
    When all replicas are deleted, delete the nodes in ZooKeeper.
    """
    # Not in the context, or with replicas that are not certain yet.
    partitions = state.partitions_of(topic)
    is_reassigning = any(partition in state.reassignments for partition in partitions)
    if topic not in state.assignments or is_reassigning:
        return []

    # Hide the topic from clients.
    effects: list[Effect] = []
    visible = [partition for partition in partitions if partition in state.partition_states]
    if visible:
        # Only an offline partition may leave the table.
        state.enter(visible, PartitionStatus.OFFLINE)
        state.enter(visible, PartitionStatus.NON_EXISTENT)
        effects += describe(state, state.brokers, partitions)

    # Finish once all logs are deleted.
    replicas = state.replicas_of(partitions)
    statuses = {replica: state.replica_status(replica) for replica in replicas}
    if all(status is ReplicaStatus.DELETION_SUCCESSFUL for status in statuses.values()):
        return [*effects, DeleteTopicZnodes(topic)]

    # Ask the brokers that have not been asked yet.
    due = [replica for replica, status in statuses.items() if status in NOT_ASKED]
    alive = [replica for replica in due if state.is_alive(*replica)]
    state.enter_replicas(alive, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
    mark_ineligible(state, set(due).difference(alive))
    return effects + stop(state, alive, delete=True)


def mark_ineligible(state: ControllerState, replicas: Iterable[Replica]) -> None:
    """Note that these replicas cannot be deleted now. Deleted ones stay deleted."""
    # The table leads there through OFFLINE.
    statuses = {replica: state.replica_status(replica) for replica in replicas}
    not_asked = [replica for replica, status in statuses.items() if status in NOT_ASKED]
    state.enter_replicas(not_asked, ReplicaStatus.OFFLINE)

    final = {ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE}
    unfinished = [replica for replica, status in statuses.items() if status not in final]
    state.enter_replicas(unfinished, ReplicaStatus.DELETION_INELIGIBLE)


def mark_eligible(state: ControllerState, replicas: Iterable[Replica]) -> None:
    """Note that the brokers of these replicas are back and can be asked again."""
    ineligible = ReplicaStatus.DELETION_INELIGIBLE
    returned = [replica for replica in replicas if state.replica_status(replica) is ineligible]
    state.enter_replicas(returned, ReplicaStatus.OFFLINE)


def ask_again(state: ControllerState, brokers: Collection[int]) -> list[Effect]:
    """Ask brokers again to delete the replicas that they could not delete before."""
    waiting = [
        (partition, broker_id)
        for topic in sorted(state.deletions)
        for partition, broker_id in state.replicas_of(state.partitions_of(topic))
        if broker_id in brokers
        and state.replica_status((partition, broker_id)) is ReplicaStatus.DELETION_INELIGIBLE
    ]
    # Whether its disk serves again, the response will say.
    for partition, broker_id in waiting:
        state.offline_dirs.get(broker_id, set()).discard(partition)
    mark_eligible(state, waiting)
    topics = sorted({partition.topic for partition, _ in waiting})
    return [effect for topic in topics for effect in resume_deletion(state, topic)]


def handle_stop_replica_response_received(
    state: ControllerState, event: StopReplicaResponseReceived
) -> list[Effect]:
    """Note which replicas are deleted.

    A failed one waits for its broker's next registration. A response from an earlier registration
    says nothing of the requests since.
    """
    if not state.is_registered(event.broker_id, event.broker_epoch):
        return []

    topics: set[str] = set()
    for partitions, status in (
        (event.deleted, ReplicaStatus.DELETION_SUCCESSFUL),
        (event.failed, ReplicaStatus.DELETION_INELIGIBLE),
    ):
        # Only replicas whose deletion is in flight: a response may come twice.
        replicas = [(partition, event.broker_id) for partition in partitions]
        started = [
            replica
            for replica in replicas
            if state.replica_status(replica) is ReplicaStatus.DELETION_STARTED
        ]
        state.enter_replicas(started, status)
        topics.update(partition.topic for partition, _ in started)
    return [effect for topic in sorted(topics) for effect in resume_deletion(state, topic)]


def handle_topic_deleted(state: ControllerState, event: TopicDeleted) -> list[Effect]:
    """Remove the topic from the context; its name is free again."""
    replicas = state.replicas_of(state.partitions_of(event.topic))
    state.enter_replicas(replicas, ReplicaStatus.NON_EXISTENT)
    state.forget_topics([event.topic])
    return []
