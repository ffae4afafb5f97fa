"""What the controller does about each event: `decide(state, event) -> effects`.

The order of what a broker is told matters as much as what it is told. It follows Kafka's: first
who lives, then who leads; a state is in ZooKeeper before any broker hears of it; and a write that
found another state there than expected reads it and starts over, because the leader of a
partition writes the same node when its in-sync set changes.

Nothing here depends on time. An event that needs a reigning controller is ignored by one that
does not reign: it was on its way when the controller resigned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from broker.controller import deletion
from broker.controller.announcement import announce, describe
from broker.controller.effects import (
    CloseChannel,
    CloseChannels,
    DeleteMarkers,
    Effect,
    Elect,
    MarkForDeletion,
    OpenChannel,
    PartitionStateWrite,
    ReadAssignments,
    ReadCluster,
    ReadPartitionStates,
    ReadUncleanElection,
    RegisterBroker,
    Repeat,
    StepDown,
    WritePartitionStates,
)
from broker.controller.events import (
    AssignmentsRead,
    BrokersChanged,
    ClusterRead,
    ControllerMoved,
    DeletionRequested,
    Elected,
    ElectionDue,
    ElectionLost,
    Event,
    FailoverFailed,
    NewSession,
    PartitionStatesRead,
    PartitionStatesWritten,
    SessionExpired,
    StopReplicaAnswered,
    TopicDeleted,
    TopicsChanged,
    TopicsMarkedForDeletion,
    UncleanElectionRead,
    WatchFired,
)
from broker.controller.leader_election import first_state, next_state, only_unclean
from broker.controller.state import ControllerState, Leadership, TopicDeletion
from protocol.topic_partition import TopicPartition


def decide(state: ControllerState, event: Event) -> list[Effect]:
    """Change `state` by `event` and say what is to be done. Does nothing itself."""
    if type(event) in OF_ANY_BROKER:
        return OF_ANY_BROKER[type(event)](state, event)
    return OF_THE_CONTROLLER[type(event)](state, event) if state.is_active else []


# --- elections -----------------------------------------------------------------------------


def _election_due(state: ControllerState, event: ElectionDue) -> list[Effect]:
    return [Elect()]


def _new_session(state: ControllerState, event: NewSession) -> list[Effect]:
    """The broker is registered before it stands for election: a controller that is not among
    the live brokers would lead nothing and reach nobody."""
    return [RegisterBroker(), Elect()]


def _elected(state: ControllerState, event: Elected) -> list[Effect]:
    state.is_active, state.active_controller_id = True, state.broker_id
    state.epoch, state.epoch_zk_version = event.epoch, event.zk_version
    return [ReadCluster()]


def _election_lost(state: ControllerState, event: ElectionLost) -> list[Effect]:
    effects = _resign(state, event) if state.is_active else []
    state.active_controller_id = event.controller_id
    return effects


def _controller_moved(state: ControllerState, event: ControllerMoved) -> list[Effect]:
    return [*_resign(state, event), Elect()]


def _failover_failed(state: ControllerState, event: FailoverFailed) -> list[Effect]:
    """What this broker cannot read, another one perhaps can."""
    step_down = StepDown(state.epoch_zk_version)
    return [*_resign(state, event), step_down]


def _resign(state: ControllerState, event: Event) -> list[Effect]:
    state.resign()
    return [CloseChannels()]


def _watch_fired(state: ControllerState, event: WatchFired) -> list[Effect]:
    return [event.read]


def _cluster_read(state: ControllerState, event: ClusterRead) -> list[Effect]:
    """Failover: take over the cluster as the last controller left it.

    The deletions are known before `_settle` looks, which elects nobody for what is to go.
    """
    state.is_loaded = True
    state.brokers.update({broker.id: broker for broker in event.brokers})
    state.assignments.update(event.assignments)
    state.leadership.update(event.leadership)
    if any(_is_ours_stale(state, known) for known in event.leadership.values()):
        return _controller_moved(state, ControllerMoved())
    marked = TopicsMarkedForDeletion(event.marked_for_deletion)
    return [
        *(OpenChannel(broker) for broker in event.brokers),
        *describe(state, state.brokers, ()),
        *_marked_for_deletion(state, marked),
        *_settle(state, state.partitions(), lead_to=state.brokers),
    ]


# --- brokers -------------------------------------------------------------------------------


def _brokers_changed(state: ControllerState, event: BrokersChanged) -> list[Effect]:
    """Brokers died, came, or did both between two looks (*bounced*: a later registration).

    A bounced broker has lost its connections and perhaps its unflushed data, so it is first
    taken for dead, and then, by the repeated event, for new.
    """
    known, now = dict(state.brokers), {broker.id: broker for broker in event.brokers}
    bounced = {each for each in known.keys() & now.keys() if known[each].epoch < now[each].epoch}
    gone = (known.keys() - now.keys()) | bounced
    new = now.keys() - known.keys()
    moved = {each for each in known.keys() & now.keys() - bounced if known[each] != now[each]}
    if not gone | new | moved:
        return []
    for topic_deletion in state.deletions.values():
        topic_deletion.forget_answers_of(gone | new)
    state.brokers.clear()
    state.brokers.update({each: now[each] for each in sorted(now.keys() - bounced)})

    effects: list[Effect] = [CloseChannel(each) for each in sorted(gone | moved)]
    effects += [OpenChannel(now[each]) for each in sorted(new | moved)]
    effects += describe(state, known, ())
    effects += describe(state, new, state.partitions())
    touched = {*state.partitions_on(gone | new), *state.leaderless()}
    effects += _settle(state, sorted(touched), lead_to=new)
    for topic in sorted(state.deletions):
        effects += deletion.pursue(state, topic)
    return [*effects, Repeat(event)] if bounced else effects


# --- partitions ----------------------------------------------------------------------------


def _topics_changed(state: ControllerState, event: TopicsChanged) -> list[Effect]:
    listed = set(event.topics)
    gone = state.assignments.keys() - listed
    marked = tuple(sorted(gone & state.deletions.keys()))
    state.forget_topics(gone)
    new = tuple(sorted(listed - state.assignments.keys()))
    effects: list[Effect] = [DeleteMarkers(marked)] if marked else []
    return [*effects, ReadAssignments(new)] if new else effects


def _assignments_read(state: ControllerState, event: AssignmentsRead) -> list[Effect]:
    """New topics and partitions. What is known already is kept: replicas move by reassignment."""
    effects: list[Effect] = []
    added: list[TopicPartition] = []
    for topic, assignment in event.assignments.items():
        known = state.assignments.get(topic, {})
        is_marked = topic in state.deletions
        if assignment is None:
            state.forget_topics([topic])
            effects += [DeleteMarkers((topic,))] if is_marked else []
            continue
        state.assignments[topic] = {**assignment, **known}
        added += [TopicPartition(topic, index) for index in assignment.keys() - known.keys()]
        effects += deletion.begin(state, topic) if is_marked else []
    return effects + _settle(state, sorted(added), lead_to=state.brokers)


def _states_read(state: ControllerState, event: PartitionStatesRead) -> list[Effect]:
    """Start over from what is in ZooKeeper.

    A partition without a node is left alone: its topic is gone, which the watch on the topics
    will tell; to create the node again would go round in circles until then.
    """
    present = {each: known for each, known in event.states.items() if known is not None}
    if any(_is_ours_stale(state, known) for known in present.values()):
        return _controller_moved(state, ControllerMoved())
    for partition in event.states.keys() - present.keys():
        state.leadership.pop(partition, None)
    state.leadership.update(present)
    return _settle(state, present, lead_to=state.brokers)


def _unclean_election_read(state: ControllerState, event: UncleanElectionRead) -> list[Effect]:
    return _settle(state, event.partitions, lead_to=state.brokers, unclean=event.allowed)


def _states_written(state: ControllerState, event: PartitionStatesWritten) -> list[Effect]:
    for write, zk_version in event.written:
        state.leadership[write.partition] = Leadership(write.state, zk_version)
    written = [write.partition for write, _ in event.written]
    new = {write.partition for write, _ in event.written if write.zk_version is None}
    effects = announce(state, written, lead_to=state.brokers, new=new)
    return [*effects, ReadPartitionStates(event.conflicts)] if event.conflicts else effects


def _settle(
    state: ControllerState,
    partitions: Iterable[TopicPartition],
    *,
    lead_to: Collection[int],
    unclean: Mapping[str, bool] | None = None,
) -> list[Effect]:
    """Write a new state where the live brokers call for one; announce what stays as it is.

    `lead_to` are the brokers that may not know yet that they lead or follow what stays.
    `unclean` answers, per topic, a ReadUncleanElection; without it, who needs it asks.
    """
    standing: list[TopicPartition] = []
    undecided: list[TopicPartition] = []
    writes: list[PartitionStateWrite] = []
    for partition in partitions:
        known, replicas = state.leadership.get(partition), state.replicas(partition)
        if partition.topic in state.deletions:
            continue
        if known is None:
            first = first_state(replicas, state.brokers, state.epoch)
            writes += [PartitionStateWrite(partition, first, None)] if first else []
            continue
        if unclean is None and only_unclean(known.state, replicas, state.brokers):
            undecided.append(partition)
            continue
        allowed = unclean is not None and unclean.get(partition.topic, False)
        after = next_state(known.state, replicas, state.brokers, state.epoch, unclean=allowed)
        if after is None:
            standing.append(partition)
        else:
            writes.append(PartitionStateWrite(partition, after, known.zk_version))
    effects = announce(state, standing, lead_to=lead_to)
    effects += [WritePartitionStates(tuple(writes))] if writes else []
    effects += [ReadUncleanElection(tuple(undecided))] if undecided else []
    return effects


def _is_ours_stale(state: ControllerState, known: Leadership) -> bool:
    """Whether a later controller than this one has written the state.

    Should /controller_epoch itself have been lost and begun anew, each such resignation raises
    it by one at the next election, until it has passed what is in the states.
    """
    return known.state.controller_epoch > state.epoch


# --- deletions -----------------------------------------------------------------------------


def _deletion_requested(state: ControllerState, event: DeletionRequested) -> list[Effect]:
    """The marker makes it last: a controller elected meanwhile will find it."""
    return [MarkForDeletion(event.topics)]


def _marked_for_deletion(state: ControllerState, event: TopicsMarkedForDeletion) -> list[Effect]:
    """A marker of an unknown topic may be of one just created: look before dropping it."""
    if not state.delete_topic_enable:
        return [DeleteMarkers(event.topics)] if event.topics else []
    effects: list[Effect] = []
    fresh = [topic for topic in event.topics if topic not in state.deletions]
    for topic in fresh:
        state.deletions[topic] = TopicDeletion()
        effects += deletion.begin(state, topic) if topic in state.assignments else []
    unknown = tuple(topic for topic in fresh if topic not in state.assignments)
    return [*effects, ReadAssignments(unknown)] if unknown else effects


OF_ANY_BROKER: Mapping[type[Any], Callable[[ControllerState, Any], list[Effect]]] = {
    ElectionDue: _election_due,
    NewSession: _new_session,
    Elected: _elected,
    ElectionLost: _election_lost,
    SessionExpired: _resign,
}

OF_THE_CONTROLLER: Mapping[type[Any], Callable[[ControllerState, Any], list[Effect]]] = {
    ControllerMoved: _controller_moved,
    FailoverFailed: _failover_failed,
    WatchFired: _watch_fired,
    ClusterRead: _cluster_read,
    BrokersChanged: _brokers_changed,
    TopicsChanged: _topics_changed,
    AssignmentsRead: _assignments_read,
    PartitionStatesRead: _states_read,
    UncleanElectionRead: _unclean_election_read,
    PartitionStatesWritten: _states_written,
    DeletionRequested: _deletion_requested,
    TopicsMarkedForDeletion: _marked_for_deletion,
    StopReplicaAnswered: deletion.stop_replica_answered,
    TopicDeleted: deletion.topic_deleted,
}
