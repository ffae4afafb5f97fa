"""Topics and their partitions: who is to lead each, as brokers and disks come and go.

A state is in ZooKeeper before any broker hears of it; and a write that found another state there
than expected reads it and starts over, because the leader of a partition writes the same node
when its in-sync set changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from broker.controller import deletion, lost_logs
from broker.controller.announcement import announce
from broker.controller.effects import (
    DeleteMarkers,
    DropReassignments,
    Effect,
    PartitionStateWrite,
    ReadAssignments,
    ReadPartitionStates,
    ReadUncleanElection,
    WritePartitionStates,
)
from broker.controller.events import (
    AssignmentsRead,
    ElectionRulesChanged,
    PartitionStatesRead,
    PartitionStatesWritten,
    TopicsChanged,
    UncleanElectionRead,
)
from broker.controller.leader_election import (
    first_state,
    next_state,
    only_unclean,
    shutdown_leader,
)
from broker.controller.partition_states import PartitionStatus
from broker.controller.reign import passed_by
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Leadership
from protocol.topic_partition import TopicPartition


def topics_changed(state: ControllerState, event: TopicsChanged) -> list[Effect]:
    """Topics came, which are read; or went, though the controller did not delete them."""
    listed = set(event.topics)
    gone = state.assignments.keys() - listed
    marked = tuple(sorted(gone & state.deletions))
    moving = tuple(
        each for each, how in state.reassignments.items() if each.topic in gone and how.by_tool
    )
    state.forget_topics(gone)
    new = tuple(sorted(listed - state.assignments.keys()))
    effects: list[Effect] = [DeleteMarkers(marked)] if marked else []
    effects += [DropReassignments(moving)] if moving else []
    return [*effects, ReadAssignments(new)] if new else effects


def assignments_read(state: ControllerState, event: AssignmentsRead) -> list[Effect]:
    """New topics and partitions. What is known already is kept: replicas move by reassignment."""
    effects: list[Effect] = []
    added: list[TopicPartition] = []
    for topic, assignment in event.assignments.items():
        is_marked = topic in state.deletions
        if assignment is None:
            state.forget_topics([topic])
            effects += [DeleteMarkers((topic,))] if is_marked else []
            continue
        known = state.assignments.get(topic, {})
        new = {index: replicas for index, replicas in assignment.items() if index not in known}
        state.add_partitions(topic, new)
        added += [TopicPartition(topic, index) for index in new]
        effects += deletion.pursue(state, topic) if is_marked else []
    return effects + settle(state, sorted(added), lead_to=state.brokers)


def states_read(state: ControllerState, event: PartitionStatesRead) -> list[Effect]:
    """Start over from what is in ZooKeeper.

    A partition without a node is left alone: its topic is gone, which the watch on the topics
    will tell; to create the node again would go round in circles until then.
    """
    present = {each: known for each, known in event.states.items() if known is not None}
    resigning = passed_by(state, present.values())
    if resigning is not None:
        return resigning
    for partition in event.states.keys() - present.keys():
        state.leadership.pop(partition, None)
    for partition, known in present.items():
        state.learn(partition, known)
    _age(state, present)
    return settle(state, present, lead_to=state.brokers)


def unclean_election_read(state: ControllerState, event: UncleanElectionRead) -> list[Effect]:
    """Whether who is not in sync may lead is known now."""
    return settle(state, event.partitions, lead_to=state.brokers, unclean=event.allowed)


def election_rules_changed(state: ControllerState, event: ElectionRulesChanged) -> list[Effect]:
    """Look again at what has no leader: it may be allowed one now."""
    waiting = [each for each in state.leaderless() if event.topic in (None, each.topic)]
    return settle(state, waiting, lead_to=None)


def states_written(state: ControllerState, event: PartitionStatesWritten) -> list[Effect]:
    """Tell what was written; read what was not."""
    for write, zk_version in event.written:
        if write.partition in state.leadership:
            isr = state.leadership[write.partition].state.isr
            state.heirs.setdefault(write.partition, tuple(isr))
        state.learn(write.partition, Leadership(write.state, zk_version))
    written = [write.partition for write, _ in event.written]
    lost_logs.let_follow(state, written)
    effects = tell(state, written, lead_to=state.brokers)
    return [*effects, ReadPartitionStates(event.conflicts)] if event.conflicts else effects


def settle(
    state: ControllerState,
    partitions: Iterable[TopicPartition],
    *,
    lead_to: Collection[int] | None,
    unclean: Mapping[str, bool] | None = None,
) -> list[Effect]:
    """Write a new state where the live brokers call for one; announce what stays as it is.

    `lead_to` are the brokers that may not know yet that they lead or follow what stays; None:
    nobody needs to hear of that.
    `unclean` answers, per topic, a ReadUncleanElection; without it, who needs it asks.
    """
    standing: list[TopicPartition] = []
    undecided: list[TopicPartition] = []
    writes: list[PartitionStateWrite] = []
    for partition in partitions:
        known, replicas = state.leadership.get(partition), state.replicas(partition)
        if state.status(partition) is PartitionStatus.NON_EXISTENT:
            continue
        if known is None:
            first = first_state(replicas, state.online(partition, replicas), state.epoch)
            writes += [PartitionStateWrite(partition, first, None)] if first else []
            continue
        state.learn(partition, known)
        candidates = _candidates(state, partition, known)
        if unclean is None and only_unclean(known.state, replicas, candidates):
            undecided.append(partition)
            continue
        allowed = unclean is not None and unclean.get(partition.topic, False)
        after = next_state(known.state, replicas, candidates, state.epoch, unclean=allowed)
        if after is None:
            standing.append(partition)
        else:
            writes.append(PartitionStateWrite(partition, after, known.zk_version))
    effects = [] if lead_to is None else tell(state, standing, lead_to=lead_to)
    effects += [WritePartitionStates(tuple(writes))] if writes else []
    effects += [ReadUncleanElection(tuple(undecided))] if undecided else []
    return effects


def tell(
    state: ControllerState, partitions: Collection[TopicPartition], *, lead_to: Collection[int]
) -> list[Effect]:
    """Announce the partitions. The replicas of those that are not on the move are new no more."""
    effects = announce(state, partitions, lead_to=lead_to)
    _age(state, partitions)
    return effects


def _age(state: ControllerState, partitions: Iterable[TopicPartition]) -> None:
    """The replicas have had their chance to make logs: from now on, one without is a loss."""
    for replica in state.replicas_of(p for p in partitions if p not in state.reassignments):
        if state.replica_status(replica) is ReplicaStatus.NEW:
            is_there = state.is_alive(*replica)
            state.enter_replicas(
                [replica], ReplicaStatus.ONLINE if is_there else ReplicaStatus.OFFLINE
            )


def _candidates(state: ControllerState, partition: TopicPartition, known: Leadership) -> set[int]:
    """The replicas that may lead and be in sync: those online, and a leader that is shutting
    down as long as nobody can take over from it."""
    current, replicas = known.state, state.replicas(partition)
    candidates = state.online(partition, {*replicas, *current.isr})
    leader = current.leader
    if leader in state.shutting_down and state.is_alive(partition, leader):
        stays = shutdown_leader(replicas, current.isr, candidates, state.shutting_down)
        return candidates | {leader} if stays is None else candidates
    return candidates
