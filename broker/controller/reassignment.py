"""Move partitions from one set of replicas to another; one engine serves the tool and the API.

The tool's reassignments stand in /admin/reassign_partitions until they are completed (up to Kafka
2.3). The API's stand in the topic's node, as the replicas being added and removed (KIP-455). So the
next controller goes on where this one stops. The steps for one partition:

1. `start`: the partition gets the replicas of target and original together. ZooKeeper has them, and
   each of these replicas is sent them under a new leader epoch.
2. The new replicas catch up. The leader writes the ISR into the state node, which is watched.
3. `handle_reassignment_step`: the partition gets the target's replicas alone. Its leader leads
   under a new epoch. The removed replicas leave the ISR, and then their logs are deleted. A moment
   later ZooKeeper gets the target alone, for all reassignments completed in that moment.

The progress between the steps is derived from the facts. So each step may be taken again at any
time: when a broker of the target returns, when the leader wrote the state meanwhile, after a
failover.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from broker.controller import deletion
from broker.controller.announcement import describe, stop
from broker.controller.effects import (
    AssignmentWrite,
    DeleteToolReassignments,
    Effect,
    PartitionStateWrite,
    Repeat,
    Reply,
    SetTimer,
    WatchLeadership,
    WriteAssignments,
    WritePartitionStates,
)
from broker.controller.events import (
    AssignmentsWritten,
    CompletedReassignmentsDue,
    IsrChanged,
    ReassignmentRequested,
    ReassignmentsDue,
    ReassignmentsListed,
    ReassignmentsRead,
    ReassignmentStep,
    Verdict,
)
from broker.controller.leader_election import reassigned_leader, under_next_epoch
from broker.controller.partitions import settle
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Reassignment
from broker.controller.topic_changes import check_size
from protocol.errors import ApiError, ErrorCode
from protocol.special_values import NO_LEADER
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState, TopicAssignment

logger = logging.getLogger(__name__)

COMPLETION_BATCH_MS = 100
"""Reassignments that complete within this time are written together: a topic's node has all of its
partitions, and is written as a whole."""

# --- requests --------------------------------------------------------------------------------


def handle_reassignments_read(state: ControllerState, event: ReassignmentsRead) -> list[Effect]:
    """Start the new reassignments of the tool's node, and remove the impossible ones from it.

    A target on a dead broker waits for it. A target on a broker never seen is a mistake.
    """
    # Leave out those that run already, or wait to be written as completed.
    new = {
        partition: target
        for partition, target in event.targets.items()
        if not _is_known(state, partition, target)
    }

    # Seen since the election, or with a replica: it may come back.
    known_brokers = state.brokers_seen.union(
        *(replicas for assignment in state.assignments.values() for replicas in assignment.values())
    )
    too_large = _find_too_large(state, new)

    # Judge each by itself.
    rejected: list[TopicPartition] = []
    started: list[TopicPartition] = []
    for partition, target in new.items():
        reason = _find_obstacle(state, partition, target, known_brokers)
        reason = reason or too_large.get(partition.topic)
        if reason:
            logger.error("%s is not reassigned to %s: %s", partition, list(target), reason)
            rejected.append(partition)
        else:
            original = state.replicas(partition)
            state.reassignments[partition] = Reassignment(original, target, by_tool=True)
            started.append(partition)

    # The tool takes no other request while its node exists: impossible ones leave at once.
    effects = start(state, started)
    return [DeleteToolReassignments(tuple(rejected)), *effects] if rejected else effects


def _is_known(state: ControllerState, partition: TopicPartition, target: tuple[int, ...]) -> bool:
    # The tool's node has it until the completion is written, a moment later.
    completed = state.completed_reassignments.get(partition)
    if completed is not None and completed.target == target:
        return True
    return partition in state.reassignments


def _find_obstacle(
    state: ControllerState,
    partition: TopicPartition,
    target: tuple[int, ...],
    known_brokers: set[int],
) -> str | None:
    if not state.replicas(partition):
        return "there is no such partition"
    if partition.topic in state.deletions:
        return "the topic is being deleted"
    if target == state.replicas(partition):
        return "that is where it is"
    if not target or len(set(target)) != len(target):
        return "a partition has replicas on one or more brokers, one on each"
    if unknown := [broker_id for broker_id in target if broker_id not in known_brokers]:
        return f"there is no broker {', '.join(map(str, unknown))}"
    return None


def handle_reassignment_requested(
    state: ControllerState, event: ReassignmentRequested
) -> list[Effect]:
    """Start, replace or cancel reassignments, each with its own verdict."""
    verdicts: dict[TopicPartition, Verdict] = {}
    started: list[TopicPartition] = []
    replaced_by_tool: list[TopicPartition] = []
    too_large = _find_too_large(state, event.targets)
    for partition, target in event.targets.items():
        try:
            # A cancellation never makes the node larger.
            if target is not None and partition.topic in too_large:
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, too_large[partition.topic])
            previous = state.reassignments.get(partition) or state.completed_reassignments.get(
                partition
            )
            if _alter(state, partition, target):
                started.append(partition)

                # The API overrides the tool, whose node must not bring its target back.
                if previous is not None and previous.by_tool:
                    replaced_by_tool.append(partition)
            verdicts[partition] = (ErrorCode.NONE, "")
        except ApiError as error:
            verdicts[partition] = (error.code, error.detail)

    effects: list[Effect] = []
    if replaced_by_tool:
        effects.append(DeleteToolReassignments(tuple(replaced_by_tool)))
    return [*effects, *start(state, started), Reply(event.request_id, verdicts)]


def _find_too_large(
    state: ControllerState, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[str, str]:
    """Return the topics whose node would be too large during these reassignments, and why."""
    # A topic's node has all of its partitions: judge its moves together.
    moves: dict[str, dict[int, Reassignment]] = {}
    for partition, target in targets.items():
        if target and partition in state.partition_states:
            move = Reassignment(state.replicas(partition), target)
            moves.setdefault(partition.topic, {})[partition.partition] = move

    reasons = {}
    for topic, moves_of_topic in moves.items():
        # The node at its largest: both sets of replicas, and the two lists of KIP-455.
        node = TopicAssignment(
            {
                **state.assignments[topic],
                **{index: move.replicas for index, move in moves_of_topic.items()},
            },
            adding={index: move.adding for index, move in moves_of_topic.items()},
            removing={index: move.removing for index, move in moves_of_topic.items()},
            version=2,
        )
        try:
            check_size(node)
        except ApiError as error:
            reasons[topic] = error.detail
    return reasons


def _alter(
    state: ControllerState, partition: TopicPartition, target: tuple[int, ...] | None
) -> bool:
    """Set the reassignment of one partition; return False if nothing needs to be done.

    Raises ApiError.
    """
    running = state.reassignments.get(partition)
    current = state.replicas(partition)
    if not current or partition.topic in state.deletions:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")

    if target is None:
        # Cancel: go back to the original replicas.
        if running is None:
            none = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            raise ApiError(none, none.meaning)
        target = running.original
    elif running is None and target == current:
        # It has these replicas already.
        return False
    else:
        _check_target(state, target, current)

    # A replaced reassignment keeps its original, so that a cancellation goes back there.
    reassignment = Reassignment(running.original if running else current, target)

    # The replicas of a replaced target go at once: one that is in sync must stay.
    leadership = state.leadership.get(partition)
    if leadership is not None and not set(leadership.state.isr) & set(reassignment.replicas):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica in sync would be left")
    state.reassignments[partition] = reassignment
    return True


def _check_target(
    state: ControllerState, target: tuple[int, ...], current: tuple[int, ...]
) -> None:
    listed = ", ".join(map(str, target))
    if not target:
        raise _invalid_target("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise _invalid_target(
            f"Duplicate replica ids in partition reassignment replica list: {listed}"
        )
    if min(target) < 0:
        raise _invalid_target(f"Invalid broker id in replica list: {listed}")

    # Only replicas that are added must be alive (KIP-455).
    added = [broker_id for broker_id in target if broker_id not in current]
    if any(broker_id not in state.brokers for broker_id in added):
        live = ", ".join(map(str, sorted(state.brokers)))
        raise _invalid_target(
            "Replica assignment has brokers that are not alive. Replica list: "
            f"{', '.join(map(str, added))}, live broker list: {live}"
        )


def _invalid_target(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


def handle_reassignments_listed(state: ControllerState, event: ReassignmentsListed) -> list[Effect]:
    """Reply with the replicas of each reassigning partition: all, those added, those removed."""
    # A completed reassignment is listed until ZooKeeper has the target alone.
    unfinished = {**state.completed_reassignments, **state.reassignments}
    partitions = unfinished.keys() if event.partitions is None else event.partitions
    replicas = {
        partition: (
            state.replicas(partition),
            unfinished[partition].adding,
            unfinished[partition].removing,
        )
        for partition in partitions
        if partition in unfinished
    }
    return [Reply(event.request_id, replicas)]


# --- steps -----------------------------------------------------------------------------------


def handle_reassignments_due(state: ControllerState, event: ReassignmentsDue) -> list[Effect]:
    """Start reassignments again that may be stuck."""
    return start(state, event.partitions)


def start(state: ControllerState, partitions: Iterable[TopicPartition]) -> list[Effect]:
    """Take step 1. A reassignment by the tool skips it if the target is in sync already."""
    writes: list[AssignmentWrite] = []
    ready: list[Effect] = []
    for partition in partitions:
        reassignment = state.reassignments.get(partition)
        if reassignment is None:
            continue

        # A new target counts, not the last one that is still to be written.
        state.completed_reassignments.pop(partition, None)
        leadership = state.leadership.get(partition)
        is_caught_up = leadership is not None and reassignment.is_caught_up(leadership.state.isr)

        # Up to Kafka 2.3 the topic's node has only the replicas of a tool's reassignment.
        if reassignment.by_tool and is_caught_up:
            ready.append(Repeat(ReassignmentStep(partition)))
        elif reassignment.by_tool:
            writes.append(AssignmentWrite(partition, reassignment.replicas))
        else:
            writes.append(
                AssignmentWrite(
                    partition, reassignment.replicas, reassignment.adding, reassignment.removing
                )
            )
    return [WriteAssignments(tuple(writes)), *ready] if writes else ready


def handle_assignments_written(state: ControllerState, event: AssignmentsWritten) -> list[Effect]:
    """Finish step 1: announce the replicas, and delete those that a new target does not need."""
    effects: list[Effect] = []
    for partition, replicas in event.replicas.items():
        effects += _assign(state, partition, replicas)
    return effects


def _assign(
    state: ControllerState, partition: TopicPartition, assigned: tuple[int, ...]
) -> list[Effect]:
    reassignment = state.reassignments.get(partition)
    if reassignment is None:
        return []

    # Replicas of a target that was replaced go; those that are new may create their logs.
    unneeded = [broker_id for broker_id in state.replicas(partition) if broker_id not in assigned]
    state.set_replicas(partition, assigned)
    replicas = state.replicas_of([partition])
    added = [replica for replica in replicas if replica not in state.replica_states]
    state.enter_replicas(added, ReplicaStatus.NEW)

    # A partition that was never led is elected first, from all of these replicas.
    leadership = state.leadership.get(partition)
    if leadership is None:
        return [
            *settle(state, [partition], leader_and_isr_to=()),
            Repeat(ReassignmentStep(partition)),
        ]

    # Replicas that change need a new leader epoch; brokers ignore a LeaderAndIsr without one.
    is_changing = bool(unneeded) or not reassignment.is_caught_up(leadership.state.isr)
    over_epoch = leadership.state.leader_epoch if is_changing else -1
    deletions = _delete_replicas(state, partition, unneeded)
    return [Repeat(ReassignmentStep(partition, over_epoch)), *deletions]


def handle_isr_changed(state: ControllerState, event: IsrChanged) -> list[Effect]:
    """Read the state again: a new replica may have caught up."""
    is_reassigning = event.partition in state.reassignments
    return [WatchLeadership(event.partition)] if is_reassigning else []


def advance_caught_up(state: ControllerState, partitions: Iterable[TopicPartition]) -> list[Effect]:
    """Go on with those of `partitions` whose target is in sync."""
    ready = (
        partition
        for partition in partitions
        if partition in state.reassignments
        and state.reassignments[partition].is_caught_up(state.leadership[partition].state.isr)
    )
    return [Repeat(ReassignmentStep(partition)) for partition in ready]


def handle_reassignment_step(state: ControllerState, event: ReassignmentStep) -> list[Effect]:
    """Go as far as possible, from step 1's new epoch to the end.

    Each write is followed by another look. The write may have met one by the leader, and must then
    be repeated.
    """
    partition = event.partition
    reassignment = state.reassignments.get(partition)
    leadership = state.leadership.get(partition)
    if reassignment is None or leadership is None:
        # It has ended, or its partition was never led.
        return []
    current = leadership.state
    isr = current.isr

    # Step 1: all replicas of original and target, under a new epoch.
    if current.leader_epoch <= event.over_epoch:
        return [
            _write(
                partition,
                _state_under_next_epoch(state, partition, reassignment),
                leadership.zk_version,
            ),
            Repeat(event),
        ]

    # Step 2: wait until the target is in sync.
    if not reassignment.is_caught_up(isr):
        return [WatchLeadership(partition)]

    # Step 3: the target alone, under a new epoch.
    if state.replicas(partition) != reassignment.target:
        if _leader(state, partition, reassignment.target, current) is None:
            # Nobody could lead: the step is repeated when a broker returns.
            return []

        # From here on the target alone counts, and its replicas have their logs.
        state.set_replicas(partition, reassignment.target)
        replicas = state.replicas_of([partition])
        alive = [replica for replica in replicas if state.is_alive(*replica)]
        state.enter_replicas(alive, ReplicaStatus.ONLINE)
        return handle_reassignment_step(state, ReassignmentStep(partition, current.leader_epoch))

    # The removed replicas leave the ISR.
    kept = tuple(broker_id for broker_id in isr if broker_id in reassignment.target)
    if kept and kept != isr:
        # Stopped first, they cannot fetch themselves back into the ISR.
        smaller = under_next_epoch(current, current.leader, kept, state.epoch)
        leaving = [(partition, broker_id) for broker_id in isr if broker_id not in kept]
        write = _write(partition, smaller, leadership.zk_version)
        return [*stop(state, leaving, delete=False), write, Repeat(event)]

    return _complete(state, partition, reassignment)


def _complete(
    state: ControllerState, partition: TopicPartition, reassignment: Reassignment
) -> list[Effect]:
    del state.reassignments[partition]
    logger.info("%s is reassigned to %s", partition, list(reassignment.target))

    # The first completion sets the timer; the next ones are written with it.
    effects = _delete_replicas(state, partition, reassignment.removing)
    if not state.completed_reassignments:
        timer = CompletedReassignmentsDue(state.resignations)
        effects.append(SetTimer(timer, COMPLETION_BATCH_MS))
    state.completed_reassignments[partition] = reassignment

    # Clients see the target alone.
    effects += describe(state, state.brokers, [partition])

    # A deletion waited for the reassignment.
    if partition.topic in state.deletions:
        effects += deletion.resume_deletion(state, partition.topic)
    return effects


def handle_completed_reassignments_due(
    state: ControllerState, event: CompletedReassignmentsDue
) -> list[Effect]:
    """Write the completed reassignments to ZooKeeper, each topic once.

    If this controller ends before, the next one finds the targets in sync and does so.
    """
    if event.resignations != state.resignations:
        # Set before a resignation.
        return []
    completed = dict(state.completed_reassignments)
    state.completed_reassignments.clear()
    if not completed:
        return []

    writes = tuple(
        AssignmentWrite(partition, reassignment.target)
        for partition, reassignment in completed.items()
    )
    by_tool = tuple(
        partition for partition, reassignment in completed.items() if reassignment.by_tool
    )

    # The topics first: if this is broken off, the tool still has its request.
    effects: list[Effect] = [WriteAssignments(writes)]
    return [*effects, DeleteToolReassignments(by_tool)] if by_tool else effects


def _delete_replicas(
    state: ControllerState, partition: TopicPartition, brokers: Iterable[int]
) -> list[Effect]:
    """Delete replicas that the partition no longer has.

    Nobody waits for it: a replica on a dead broker keeps its log there.
    """
    # Those that were never announced have no state, and no log.
    replicas = [
        (partition, broker_id)
        for broker_id in brokers
        if (partition, broker_id) in state.replica_states
    ]

    # The whole way through the table at once, as no response is waited for.
    state.enter_replicas(
        replicas,
        ReplicaStatus.OFFLINE,
        ReplicaStatus.DELETION_STARTED,
        ReplicaStatus.DELETION_SUCCESSFUL,
        ReplicaStatus.NON_EXISTENT,
    )
    return stop(state, replicas, delete=True)


def _leader(
    state: ControllerState,
    partition: TopicPartition,
    replicas: tuple[int, ...],
    current: PartitionState,
) -> int | None:
    """Return the current leader if it is alive and in `replicas`, or else the first in sync."""
    if current.leader in replicas and state.is_alive(partition, current.leader):
        return current.leader
    return reassigned_leader(replicas, current.isr, state.online_replicas(partition, replicas))


def _state_under_next_epoch(
    state: ControllerState, partition: TopicPartition, reassignment: Reassignment
) -> PartitionState:
    """Return the state under a new epoch.

    Its ISR has no replica that is neither in the original nor in the target.
    """
    current = state.leadership[partition].state
    replicas = state.replicas(partition)
    isr = tuple(broker_id for broker_id in current.isr if broker_id in reassignment.replicas)

    # If nobody can lead now, the leader stays as it is.
    leader = _leader(state, partition, replicas, current)
    if leader is None:
        leader = current.leader if current.leader in replicas else NO_LEADER

    # The ISR is never emptied.
    return under_next_epoch(current, leader, isr or current.isr, state.epoch)


def _write(
    partition: TopicPartition, after: PartitionState, zk_version: int
) -> WritePartitionStates:
    return WritePartitionStates((PartitionStateWrite(partition, after, zk_version),))
