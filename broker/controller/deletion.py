"""How a topic is deleted, though brokers come and go meanwhile.

First every broker forgets the topic (leader -2 in its metadata), then each replica's broker
deletes the log, then ZooKeeper forgets it. A replica on a dead broker holds up the last step
alone: it is asked when the broker is back, and until then the name stays taken, because a log
that turned up later under a topic of the same name would be served as that topic's.

A topic with a partition on the move waits until that has arrived: its replicas are not known
for certain before.
"""

from __future__ import annotations

from collections.abc import Iterable

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
    StopReplicaAnswered,
    TopicDeleted,
    TopicsMarkedForDeletion,
)
from broker.controller.partition_states import PartitionStatus
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Replica

NOT_ASKED = {ReplicaStatus.NEW, ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE}


def requested(state: ControllerState, event: DeletionRequested) -> list[Effect]:
    """The marker makes it last: a controller elected meanwhile will find it."""
    return [MarkForDeletion(event.topics)]


def marked(state: ControllerState, event: TopicsMarkedForDeletion) -> list[Effect]:
    """A marker of an unknown topic may be of one just created: look before dropping it."""
    if not state.delete_topic_enable:
        return [DeleteMarkers(event.topics)] if event.topics else []
    fresh = [topic for topic in event.topics if topic not in state.deletions]
    state.deletions.update(fresh)
    effects = [effect for topic in fresh for effect in pursue(state, topic)]
    unknown = tuple(topic for topic in fresh if topic not in state.assignments)
    return [*effects, ReadAssignments(unknown)] if unknown else effects


def pursue(state: ControllerState, topic: str) -> list[Effect]:
    """Hide the topic, and ask the live brokers that have not been asked to delete their replicas;
    when all are gone, finish."""
    partitions = state.partitions_of(topic)
    if topic not in state.assignments or any(each in state.reassignments for each in partitions):
        return []
    effects: list[Effect] = []
    shown = [each for each in partitions if each in state.partition_states]
    if shown:
        state.enter(shown, PartitionStatus.OFFLINE)
        state.enter(shown, PartitionStatus.NON_EXISTENT)
        effects += describe(state, state.brokers, partitions)
    replicas = state.replicas_of(partitions)
    if all(state.replica_status(each) is ReplicaStatus.DELETION_SUCCESSFUL for each in replicas):
        return [*effects, DeleteTopicZnodes(topic)]
    due = [each for each in replicas if state.replica_status(each) in NOT_ASKED]
    alive = [each for each in due if state.is_alive(*each)]
    state.enter_replicas(alive, ReplicaStatus.OFFLINE, ReplicaStatus.DELETION_STARTED)
    hold_up(state, set(due).difference(alive))
    return effects + stop(state, alive, delete=True)


def hold_up(state: ControllerState, replicas: Iterable[Replica]) -> None:
    """These replicas cannot be deleted now; those that have been are not asked for again."""
    left = {each: state.replica_status(each) for each in replicas}
    state.enter_replicas([r for r, s in left.items() if s in NOT_ASKED], ReplicaStatus.OFFLINE)
    done = {ReplicaStatus.DELETION_SUCCESSFUL, ReplicaStatus.DELETION_INELIGIBLE}
    state.enter_replicas(
        [r for r, s in left.items() if s not in done], ReplicaStatus.DELETION_INELIGIBLE
    )


def let_go_on(state: ControllerState, replicas: Iterable[Replica]) -> None:
    """These replicas' brokers are back: they can be asked again."""
    held_up = ReplicaStatus.DELETION_INELIGIBLE
    back = [each for each in replicas if state.replica_status(each) is held_up]
    state.enter_replicas(back, ReplicaStatus.OFFLINE)


def stop_replica_answered(state: ControllerState, event: StopReplicaAnswered) -> list[Effect]:
    """Note what is gone. What failed waits for its broker's next registration; an answer from an
    earlier one says nothing of what was asked since."""
    if not state.is_registered(event.broker_id, event.broker_epoch):
        return []
    touched: set[str] = set()
    for partitions, outcome in (
        (event.deleted, ReplicaStatus.DELETION_SUCCESSFUL),
        (event.failed, ReplicaStatus.DELETION_INELIGIBLE),
    ):
        asked = [
            (partition, event.broker_id)
            for partition in partitions
            if state.replica_status((partition, event.broker_id)) is ReplicaStatus.DELETION_STARTED
        ]
        state.enter_replicas(asked, outcome)
        touched.update(partition.topic for partition, _ in asked)
    return [effect for topic in sorted(touched) for effect in pursue(state, topic)]


def topic_deleted(state: ControllerState, event: TopicDeleted) -> list[Effect]:
    """The name is free again."""
    replicas = state.replicas_of(state.partitions_of(event.topic))
    state.enter_replicas(replicas, ReplicaStatus.NON_EXISTENT)
    state.forget_topics([event.topic])
    return []
