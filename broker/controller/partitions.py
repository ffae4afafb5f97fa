"""Topics and their partitions: elect leaders as topics, brokers and disks come and go.

A state is in ZooKeeper before any broker sees it. The leader of a partition writes the same node
when its ISR changes. So a write that meets another version than expected is followed by a read, and
the decision is taken again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from broker.controller import deletion, lost_logs
from broker.controller.announcement import announce
from broker.controller.controller_epoch import resign_if_superseded
from broker.controller.effects import (
    DeleteMarkers,
    DeleteToolReassignments,
    Effect,
    PartitionStateWrite,
    ReadAssignments,
    ReadPartitionStates,
    ReadUncleanElection,
    Repeat,
    WritePartitionStates,
)
from broker.controller.events import (
    AssignmentsRead,
    ElectionRulesChanged,
    PartitionsAffected,
    PartitionStatesRead,
    PartitionStatesWritten,
    TopicsChanged,
    UncleanElectionRead,
)
from broker.controller.leader_election import (
    first_state,
    needs_unclean_election,
    next_state,
    shutdown_leader,
)
from broker.controller.partition_states import PartitionStatus
from broker.controller.replicas import end_new_state
from broker.controller.state import ControllerState, Leadership
from broker.controller.topic_ids import pin_now
from protocol.topic_partition import TopicPartition

PARTITIONS_A_TURN = 1_000
"""Partitions that are settled between two turns of the loop, when brokers or topics change."""


def handle_topics_changed(state: ControllerState, event: TopicsChanged) -> list[Effect]:
    """Read new topics, and remove those that are gone although this controller deleted none."""
    listed = set(event.topics)
    gone = state.assignments.keys() - listed

    # Collect what refers to the topics before they are forgotten.
    marked = tuple(sorted(gone & state.deletions))
    reassigning = tuple(
        partition
        for partition, reassignment in state.reassignments.items()
        if partition.topic in gone and reassignment.by_tool
    )
    state.forget_topics(gone)

    # Requests for a topic that is gone are done.
    effects: list[Effect] = []
    if marked:
        effects.append(DeleteMarkers(marked))
    if reassigning:
        effects.append(DeleteToolReassignments(reassigning))
    new = tuple(sorted(listed - state.assignments.keys()))
    if new:
        effects.append(ReadAssignments(new))
    return effects


def handle_assignments_read(state: ControllerState, event: AssignmentsRead) -> list[Effect]:
    """Add new topics and partitions. Known ones are kept: only a reassignment moves replicas."""
    effects: list[Effect] = []
    added: list[TopicPartition] = []
    for topic, assignment in event.assignments.items():
        is_marked = topic in state.deletions
        if assignment is None:
            # Deleted since it was listed.
            state.forget_topics([topic])
            effects += [DeleteMarkers((topic,))] if is_marked else []
            continue

        # Only the partitions that are new here; a marked topic is deleted with them.
        known = state.assignments.get(topic, {})
        new = {index: replicas for index, replicas in assignment.items() if index not in known}
        state.add_partitions(topic, new)
        added += [TopicPartition(topic, index) for index in new]
        effects += deletion.resume_deletion(state, topic) if is_marked else []
    effects += settle_in_turns(state, sorted(added), leader_and_isr_to=state.brokers)
    return pin_now(state, event.unpinned) + effects


def handle_partition_states_read(
    state: ControllerState, event: PartitionStatesRead
) -> list[Effect]:
    """Decide again from the states in ZooKeeper.

    A partition without a node is left alone. Its topic is gone, and the watch on the topics will
    say so. To create the node again would go round in circles until then.
    """
    present = {
        partition: leadership
        for partition, leadership in event.states.items()
        if leadership is not None
    }
    resignation = resign_if_superseded(state, present.values())
    if resignation is not None:
        return resignation

    # Another controller has written the first state, and announced it: no replica may lack its
    # log as a new one.
    for partition in present.keys() - state.leadership.keys():
        for broker_id in state.replicas(partition):
            end_new_state(state, broker_id, [partition])

    # Take what ZooKeeper has.
    for partition in event.states.keys() - present.keys():
        state.leadership.pop(partition, None)
    for partition, leadership in present.items():
        state.set_leadership(partition, leadership)

    return settle(state, present, leader_and_isr_to=state.brokers)


def handle_unclean_election_read(
    state: ControllerState, event: UncleanElectionRead
) -> list[Effect]:
    """Decide again, now that it is known where replicas out of sync may lead."""
    return settle(state, event.partitions, leader_and_isr_to=state.brokers, unclean=event.allowed)


def handle_election_rules_changed(
    state: ControllerState, event: ElectionRulesChanged
) -> list[Effect]:
    """Try again to elect leaders for leaderless partitions, which may be allowed now."""
    waiting = [
        partition
        for partition in state.leaderless_partitions()
        if event.topic in (None, partition.topic)
    ]
    return settle(state, waiting, leader_and_isr_to=None)


def handle_partition_states_written(
    state: ControllerState, event: PartitionStatesWritten
) -> list[Effect]:
    """Publish the states that were written, and read the others."""
    for write, zk_version in event.written:
        previous = state.leadership.get(write.partition)

        # Keep the ISR of the last confirmed leader through several elections.
        if previous is not None:
            state.isr_before_election.setdefault(write.partition, tuple(previous.state.isr))
        state.set_leadership(write.partition, Leadership(write.state, zk_version))

    # Replicas that left the ISR may follow, before the others get to know the new leader.
    written = [write.partition for write, _ in event.written]
    lost_logs.let_follow(state, written)
    effects = publish(state, written, leader_and_isr_to=state.brokers)

    # Leaders wrote those of the conflicts: read and decide again.
    return [*effects, ReadPartitionStates(event.conflicts)] if event.conflicts else effects


def settle(
    state: ControllerState,
    partitions: Iterable[TopicPartition],
    *,
    leader_and_isr_to: Collection[int] | None,
    unclean: Mapping[str, bool] | None = None,
) -> list[Effect]:
    """Write a new state where the live brokers call for one, and publish the unchanged states.

    `leader_and_isr_to` are the brokers that may not know yet that they lead or follow an unchanged
    partition; with None, unchanged states are not published at all. `unclean` has the result of
    ReadUncleanElection per topic; without it, partitions that need it ask for it.
    """
    unchanged: list[TopicPartition] = []
    undecided: list[TopicPartition] = []
    writes: list[PartitionStateWrite] = []
    for partition in partitions:
        if state.status(partition) is PartitionStatus.NON_EXISTENT:
            # Its topic is being deleted.
            continue

        # A partition without a state gets its first one.
        leadership = state.leadership.get(partition)
        replicas = state.replicas(partition)
        if leadership is None:
            online = state.online_replicas(partition, replicas)
            first = first_state(replicas, online, state.epoch)
            writes += [PartitionStateWrite(partition, first, None)] if first else []
            continue

        # An unclean election needs the topic's permission.
        state.set_leadership(partition, leadership)
        candidates = _candidates(state, partition, leadership)
        if unclean is None and needs_unclean_election(leadership.state, replicas, candidates):
            undecided.append(partition)
            continue

        # Elect, and shrink the ISR to the replicas that are there.
        allowed = unclean is not None and unclean.get(partition.topic, False)
        # A replica that is new may not have made its log yet (fault core-R8, was: replicas).
        preference = state.confirmed_first(partition)
        after = next_state(leadership.state, preference, candidates, state.epoch, unclean=allowed)
        if after is None:
            unchanged.append(partition)
        else:
            writes.append(PartitionStateWrite(partition, after, leadership.zk_version))

    # States that stay can be sent now, new ones after they are written.
    effects: list[Effect] = []
    if leader_and_isr_to is not None:
        effects += publish(state, unchanged, leader_and_isr_to=leader_and_isr_to)
    if writes:
        effects.append(WritePartitionStates(tuple(writes)))
    if undecided:
        effects.append(ReadUncleanElection(tuple(undecided)))
    return effects


def settle_in_turns(
    state: ControllerState,
    partitions: Sequence[TopicPartition],
    *,
    leader_and_isr_to: Collection[int],
    left: Collection[TopicPartition] = (),
) -> list[Effect]:
    """Settle the first of very many partitions, and leave the others to later turns of the loop.

    Nothing but what these lead to is decided in between. `left` are the partitions of which a
    replica was on a broker that is gone.
    """
    effects = settle(state, partitions[:PARTITIONS_A_TURN], leader_and_isr_to=leader_and_isr_to)
    for first in range(PARTITIONS_A_TURN, len(partitions), PARTITIONS_A_TURN):
        later = tuple(partitions[first : first + PARTITIONS_A_TURN])
        of_gone = frozenset(later).intersection(left)
        effects.append(Repeat(PartitionsAffected(later, of_gone, frozenset(leader_and_isr_to))))
    return effects


def publish(
    state: ControllerState,
    partitions: Collection[TopicPartition],
    *,
    leader_and_isr_to: Collection[int],
) -> list[Effect]:
    """Announce the partitions. Their replicas stay new until their brokers respond."""
    return announce(state, partitions, leader_and_isr_to=leader_and_isr_to)


def _candidates(
    state: ControllerState, partition: TopicPartition, leadership: Leadership
) -> set[int]:
    """Return the replicas that may lead and be in sync.

    These are the online ones, and a leader that is shutting down while no other can take over.
    """
    current = leadership.state
    replicas = state.replicas(partition)
    candidates = state.online_replicas(partition, {*replicas, *current.isr})

    # A leader that is about to stop leads on until another replica can.
    leader = current.leader
    if leader in state.shutting_down and state.is_alive(partition, leader):
        successor = shutdown_leader(replicas, current.isr, candidates, state.shutting_down)
        if successor is None:
            return candidates | {leader}
    return candidates
