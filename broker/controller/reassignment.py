"""Moving partitions from one set of replicas to another, one engine for the tool and the API.

The tool's wishes stand in /admin/reassign_partitions until they are fulfilled (up to Kafka 2.3);
the API's in the topic's node, as the replicas that come and those that go (KIP-455). So the next
controller goes on where this one stops. The way of one partition:

1. `start`: the partition is kept by the target and the original; ZooKeeper has it so, and, under
   a new leader epoch, so has each of these replicas.
2. The new replicas catch up. The leader says so in the state node, which is watched.
3. `go_on`: the target alone keeps the partition. Its leader leads under a new epoch, the replicas
   that go leave the in-sync set and then their logs are deleted; ZooKeeper has the target alone,
   a moment later, for all that arrive in it.

What stands between the steps is read off the facts, so each may be taken again at any time: when a
broker of the target returns, when a state was written by its leader meanwhile, after a failover.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from broker.controller import deletion
from broker.controller.announcement import describe, stop
from broker.controller.effects import (
    Answer,
    AssignmentWrite,
    DropReassignments,
    Effect,
    PartitionStateWrite,
    Repeat,
    SetTimer,
    WatchLeadership,
    WriteAssignments,
    WritePartitionStates,
)
from broker.controller.events import (
    ArrivalsDue,
    AssignmentsWritten,
    InSyncSetChanged,
    Reassigning,
    ReassignmentRequested,
    ReassignmentsDue,
    ReassignmentsListed,
    ReassignmentsRead,
    Verdict,
)
from broker.controller.leader_election import reassigned_leader, under_next_epoch
from broker.controller.partitions import settle
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import NO_LEADER, ControllerState, Reassignment
from broker.controller.topic_changes import check_size
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState, TopicAssignment

logger = logging.getLogger(__name__)

ARRIVALS_GATHER_MS = 100
"""Partitions that arrive within so long are written down together: a topic's node has all of its
partitions, and is written whole each time."""

# --- what is asked for -----------------------------------------------------------------------


def asked_by_tool(state: ControllerState, event: ReassignmentsRead) -> list[Effect]:
    """Begin what is new in the tool's node, and take out of it what cannot be done.

    A target that is down is waited for; one that was never heard of is a mistake.
    """
    fresh = {p: to for p, to in event.targets.items() if not _is_known(state, p, to)}
    known = state.brokers_seen.union(
        *(each for a in state.assignments.values() for each in a.values())
    )
    dropped: list[TopicPartition] = []
    begun: list[TopicPartition] = []
    too_large = _too_large(state, fresh)
    for partition, target in fresh.items():
        why_not = _why_not(state, partition, target, known) or too_large.get(partition.topic)
        if why_not:
            logger.error("%s is not reassigned to %s: %s", partition, list(target), why_not)
            dropped.append(partition)
        else:
            original = state.replicas(partition)
            state.reassignments[partition] = Reassignment(original, target, by_tool=True)
            begun.append(partition)
    effects = start(state, begun)
    return [DropReassignments(tuple(dropped)), *effects] if dropped else effects


def _is_known(state: ControllerState, partition: TopicPartition, target: tuple[int, ...]) -> bool:
    arrived = state.arrived.get(partition)
    return partition in state.reassignments or (arrived is not None and arrived.target == target)


def _why_not(
    state: ControllerState, partition: TopicPartition, target: tuple[int, ...], known: set[int]
) -> str | None:
    if not state.replicas(partition):
        return "there is no such partition"
    if partition.topic in state.deletions:
        return "the topic is being deleted"
    if target == state.replicas(partition):
        return "that is where it is"
    if not target or len(set(target)) != len(target):
        return "a partition has replicas on one or more brokers, one on each"
    if unknown := [each for each in target if each not in known]:
        return f"there is no broker {', '.join(map(str, unknown))}"
    return None


def requested(state: ControllerState, event: ReassignmentRequested) -> list[Effect]:
    """Begin, replace or stop reassignments, each for itself."""
    verdicts: dict[TopicPartition, Verdict] = {}
    begun: list[TopicPartition] = []
    by_tool: list[TopicPartition] = []
    too_large = _too_large(state, event.targets)
    for partition, target in event.targets.items():
        try:
            if target is not None and partition.topic in too_large:
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, too_large[partition.topic])
            before = state.reassignments.get(partition) or state.arrived.get(partition)
            if _alter(state, partition, target):
                begun.append(partition)
                by_tool += [partition] if before is not None and before.by_tool else []
            verdicts[partition] = (ErrorCode.NONE, "")
        except ApiError as error:
            verdicts[partition] = (error.code, error.detail)
    dropped: list[Effect] = [DropReassignments(tuple(by_tool))] if by_tool else []
    return [*dropped, *start(state, begun), Answer(event.request_id, verdicts)]


def _too_large(
    state: ControllerState, targets: Mapping[TopicPartition, tuple[int, ...] | None]
) -> dict[str, str]:
    """The topics that ZooKeeper could not keep on their way to these targets, and why."""
    moves: dict[str, dict[int, Reassignment]] = {}
    for partition, target in targets.items():
        if target and partition in state.partition_states:
            move = Reassignment(state.replicas(partition), target)
            moves.setdefault(partition.topic, {})[partition.partition] = move

    reasons = {}
    for topic, moving in moves.items():
        on_the_way = TopicAssignment(
            {
                **state.assignments[topic],
                **{index: move.replicas for index, move in moving.items()},
            },
            adding={index: move.adding for index, move in moving.items()},
            removing={index: move.removing for index, move in moving.items()},
            version=2,
        )
        try:
            check_size(on_the_way)
        except ApiError as error:
            reasons[topic] = error.detail
    return reasons


def _alter(
    state: ControllerState, partition: TopicPartition, target: tuple[int, ...] | None
) -> bool:
    """Note what is wanted of one partition; whether there is anything to do. Raises ApiError."""
    running, current = state.reassignments.get(partition), state.replicas(partition)
    if not current or partition.topic in state.deletions:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if target is None:
        if running is None:
            none = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            raise ApiError(none, none.meaning)
        target = running.original
    elif running is None and target == current:
        return False
    else:
        _check_target(state, target, current)
    wanted = Reassignment(running.original if running else current, target)
    known = state.leadership.get(partition)
    if known is not None and not set(known.state.isr) & set(wanted.replicas):
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica in sync would be left")
    state.reassignments[partition] = wanted
    return True


def _check_target(
    state: ControllerState, target: tuple[int, ...], current: tuple[int, ...]
) -> None:
    listed = ", ".join(map(str, target))
    if not target:
        raise _bad_target("Empty replica list specified in partition reassignment.")
    if len(set(target)) != len(target):
        raise _bad_target(f"Duplicate replica ids in partition reassignment replica list: {listed}")
    if min(target) < 0:
        raise _bad_target(f"Invalid broker id in replica list: {listed}")
    added = [each for each in target if each not in current]
    if any(each not in state.brokers for each in added):
        live = ", ".join(map(str, sorted(state.brokers)))
        raise _bad_target(
            "Replica assignment has brokers that are not alive. Replica list: "
            f"{', '.join(map(str, added))}, live broker list: {live}"
        )


def _bad_target(why: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)


def listed(state: ControllerState, event: ReassignmentsListed) -> list[Effect]:
    """What is on the move: partition -> all its replicas, those that come, those that go."""
    unfinished = {**state.arrived, **state.reassignments}  # until ZooKeeper has the target alone
    asked = unfinished.keys() if event.partitions is None else event.partitions
    moving = {each: unfinished[each] for each in asked if each in unfinished}
    found = {
        partition: (state.replicas(partition), each.adding, each.removing)
        for partition, each in moving.items()
    }
    return [Answer(event.request_id, found)]


# --- how it is done --------------------------------------------------------------------------


def due(state: ControllerState, event: ReassignmentsDue) -> list[Effect]:
    """Begin again what may have got stuck."""
    return start(state, event.partitions)


def start(state: ControllerState, partitions: Iterable[TopicPartition]) -> list[Effect]:
    """Step 1. The tool's needs nothing of it where the target is in sync already."""
    writes: list[AssignmentWrite] = []
    ready: list[Effect] = []
    for partition in partitions:
        how, known = state.reassignments.get(partition), state.leadership.get(partition)
        if how is None:
            continue
        state.arrived.pop(partition, None)
        if how.by_tool and known is not None and how.is_caught_up(known.state.isr):
            ready.append(Repeat(Reassigning(partition)))
        else:
            moving = () if how.by_tool else (how.adding, how.removing)
            writes.append(AssignmentWrite(partition, how.replicas, *moving))
    return [WriteAssignments(tuple(writes)), *ready] if writes else ready


def assignments_written(state: ControllerState, event: AssignmentsWritten) -> list[Effect]:
    """The other half of step 1: tell all replicas, and delete those that are not needed now
    that the target is another one."""
    effects: list[Effect] = []
    for partition, replicas in event.replicas.items():
        effects += _assigned(state, partition, replicas)
    return effects


def _assigned(
    state: ControllerState, partition: TopicPartition, assigned: tuple[int, ...]
) -> list[Effect]:
    how, known = state.reassignments.get(partition), state.leadership.get(partition)
    if how is None:
        return []
    unneeded = [each for each in state.replicas(partition) if each not in assigned]
    state.set_replicas(partition, assigned)
    replicas = state.replicas_of([partition])
    state.enter_replicas([r for r in replicas if r not in state.replica_states], ReplicaStatus.NEW)
    if known is None:
        return [*settle(state, [partition], lead_to=()), Repeat(Reassigning(partition))]
    is_news = bool(unneeded) or not how.is_caught_up(known.state.isr)
    over_epoch = known.state.leader_epoch if is_news else -1
    drop = _drop(state, partition, unneeded)
    return [Repeat(Reassigning(partition, over_epoch)), *drop]


def in_sync_set_changed(state: ControllerState, event: InSyncSetChanged) -> list[Effect]:
    """Somebody has perhaps caught up."""
    is_moving = event.partition in state.reassignments
    return [WatchLeadership(event.partition)] if is_moving else []


def caught_up(state: ControllerState, partitions: Iterable[TopicPartition]) -> list[Effect]:
    """Go on with those of `partitions` whose target is in sync."""
    ready = (
        each
        for each in partitions
        if each in state.reassignments
        and state.reassignments[each].is_caught_up(state.leadership[each].state.isr)
    )
    return [Repeat(Reassigning(each)) for each in ready]


def go_on(state: ControllerState, event: Reassigning) -> list[Effect]:
    """From step 1's new epoch to the end, as far as it goes now. Each write is looked at again
    afterwards: it may have met another one by the leader, and have to be done once more."""
    partition = event.partition
    how, known = state.reassignments.get(partition), state.leadership.get(partition)
    if how is None or known is None:
        return []
    current, isr = known.state, known.state.isr
    if current.leader_epoch <= event.over_epoch:
        return [
            _write(partition, _led_anew(state, partition, how), known.zk_version),
            Repeat(event),
        ]
    if not how.is_caught_up(isr):
        return [WatchLeadership(partition)]
    if state.replicas(partition) != how.target:
        if _leader(state, partition, how.target, current) is None:
            return []
        state.set_replicas(partition, how.target)
        arrived = [r for r in state.replicas_of([partition]) if state.is_alive(*r)]
        state.enter_replicas(arrived, ReplicaStatus.ONLINE)
        return go_on(state, Reassigning(partition, current.leader_epoch))
    kept = tuple(each for each in isr if each in how.target)
    if kept and kept != isr:
        smaller = under_next_epoch(current, current.leader, kept, state.epoch)
        leaving = [(partition, each) for each in isr if each not in kept]
        write = _write(partition, smaller, known.zk_version)
        return [*stop(state, leaving, delete=False), write, Repeat(event)]
    return _finish(state, partition, how)


def _finish(state: ControllerState, partition: TopicPartition, how: Reassignment) -> list[Effect]:
    del state.reassignments[partition]
    logger.info("%s is reassigned to %s", partition, list(how.target))
    effects = _drop(state, partition, how.removing)
    if not state.arrived:
        effects.append(SetTimer(ArrivalsDue(state.reign), ARRIVALS_GATHER_MS))
    state.arrived[partition] = how
    effects += describe(state, state.brokers, [partition])
    if partition.topic in state.deletions:
        effects += deletion.pursue(state, partition.topic)
    return effects


def arrivals_due(state: ControllerState, event: ArrivalsDue) -> list[Effect]:
    """Write down what has arrived, each topic's in one go. Should this controller end before, the
    next one finds the targets in sync, and does so."""
    if event.reign != state.reign:
        return []
    arrived = dict(state.arrived)
    state.arrived.clear()
    if not arrived:
        return []
    writes = tuple(AssignmentWrite(each, how.target) for each, how in arrived.items())
    by_tool = tuple(each for each, how in arrived.items() if how.by_tool)
    effects: list[Effect] = [WriteAssignments(writes)]
    return [*effects, DropReassignments(by_tool)] if by_tool else effects


def _drop(
    state: ControllerState, partition: TopicPartition, brokers: Iterable[int]
) -> list[Effect]:
    """Have replicas deleted that the partition has no more. Nobody waits for it: the log of one
    whose broker is down is left lying there."""
    replicas = [(partition, each) for each in brokers if (partition, each) in state.replica_states]
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
    """Who of `replicas` leads: the leader that there is, or else the first in sync."""
    if current.leader in replicas and state.is_alive(partition, current.leader):
        return current.leader
    return reassigned_leader(replicas, current.isr, state.online(partition, replicas))


def _led_anew(
    state: ControllerState, partition: TopicPartition, how: Reassignment
) -> PartitionState:
    """The state under a new epoch, without the in-sync replicas that are neither of the original
    nor of the target."""
    current, replicas = state.leadership[partition].state, state.replicas(partition)
    isr = tuple(each for each in current.isr if each in how.replicas) or current.isr
    leader = _leader(state, partition, replicas, current)
    if leader is None:
        leader = current.leader if current.leader in replicas else NO_LEADER
    return under_next_epoch(current, leader, isr, state.epoch)


def _write(
    partition: TopicPartition, after: PartitionState, zk_version: int
) -> WritePartitionStates:
    return WritePartitionStates((PartitionStateWrite(partition, after, zk_version),))
