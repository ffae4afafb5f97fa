"""Brokers that register, die, change their address, or return."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller import deletion
from broker.controller.announcement import describe
from broker.controller.effects import (
    CloseChannel,
    Effect,
    OpenChannel,
    RefreshLeadership,
    Repeat,
    WritePartitionStates,
)
from broker.controller.events import BrokersChanged, PartitionsAffected, ReassignmentsDue
from broker.controller.partitions import PARTITIONS_A_TURN, settle, settle_in_turns
from broker.controller.replicas import bring_online, is_new, take_offline
from broker.controller.state import ControllerState, Replica
from protocol.topic_partition import TopicPartition


def handle_brokers_changed(state: ControllerState, event: BrokersChanged) -> list[Effect]:
    """Take note of brokers that died, came, or did both between two reads (*bounced*).

    A bounced broker has a later registration. It has lost its connections and perhaps its unflushed
    data. So it first counts as dead, and then, by the repeated event, as new.
    """
    before = dict(state.brokers)
    after = {broker.id: broker for broker in event.brokers}
    common = before.keys() & after.keys()

    # Who bounced, left or came, and who has another address.
    bounced = {
        broker_id for broker_id in common if before[broker_id].epoch < after[broker_id].epoch
    }
    gone = (before.keys() - after.keys()) | bounced
    new = after.keys() - before.keys()
    changed = {broker_id for broker_id in common - bounced if before[broker_id] != after[broker_id]}
    if not gone | new | changed:
        return []

    # Register first: the replicas' states depend on which brokers are there.
    state.brokers.clear()
    state.brokers.update(
        {broker_id: after[broker_id] for broker_id in sorted(after.keys() - bounced)}
    )
    state.brokers_seen.update(new)
    left = {partition for partition, _ in _take_brokers_offline(state, gone)}
    affected = {
        *left,
        *(partition for partition, _ in _bring_brokers_online(state, new)),
        *state.leaderless_partitions(),
    }

    # Brokers learn who lives before they learn who leads.
    # A channel moves with its broker, with all that it has to send.
    effects: list[Effect] = [CloseChannel(broker_id) for broker_id in sorted(gone)]
    effects += [OpenChannel(after[broker_id]) for broker_id in sorted(new | changed)]
    effects += describe(state, before, ())
    effects += describe(state, new, state.partitions())
    ordered = sorted(affected)
    effects += settle_in_turns(state, ordered, leader_and_isr_to=new, left=left)

    # Work that waited for a broker goes on.
    waiting = tuple(
        partition
        for partition, reassignment in state.reassignments.items()
        if new & set(reassignment.target)
    )
    if waiting:
        effects.append(Repeat(ReassignmentsDue(waiting)))
    for topic in sorted(state.deletions):
        effects += deletion.resume_deletion(state, topic)
    effects += _refresh_unwritten(state, left.intersection(ordered[:PARTITIONS_A_TURN]), effects)
    if bounced:
        effects.append(Repeat(event))
    return effects


def handle_partitions_affected(state: ControllerState, event: PartitionsAffected) -> list[Effect]:
    """Settle some of many partitions that a change of brokers, or a takeover, concerns."""
    effects = settle(state, event.partitions, leader_and_isr_to=event.new)
    return effects + _refresh_unwritten(state, event.left, effects)


def _take_brokers_offline(state: ControllerState, brokers: Collection[int]) -> list[Replica]:
    """Take the brokers' replicas offline. Their shutdowns, failed disks and lost logs are void."""
    state.shutting_down.difference_update(brokers)
    for broker_id in brokers:
        state.offline_dirs.pop(broker_id, None)
        for lost in state.lost_logs.values():
            lost.discard(broker_id)
    replicas = state.replicas_on(brokers)
    # One that may not have made its log is new when it returns: else it would seem to have lost
    # the log, and nobody else may lead (fault core-R8, was: set()).
    kept_new = {replica for replica in replicas if is_new(state, replica)}
    take_offline(state, [replica for replica in replicas if replica not in kept_new])
    return replicas


def _refresh_unwritten(
    state: ControllerState, left: Iterable[TopicPartition], effects: Iterable[Effect]
) -> list[Effect]:
    """Read the states, of partitions whose replica left, that are not written now.

    A leader may have taken the broker back into the in-sync set, unheard: its last fetch came after
    the controller had taken it out.
    """
    written = {
        write.partition
        for effect in effects
        if isinstance(effect, WritePartitionStates)
        for write in effect.writes
    }

    # Without a live leader nobody writes the state but this controller.
    led = (
        partition
        for partition in left
        if partition in state.leadership
        and state.leadership[partition].state.leader in state.brokers
    )

    unwritten = sorted(partition for partition in led if partition not in written)
    return [RefreshLeadership(tuple(unwritten))] if unwritten else []


def _bring_brokers_online(state: ControllerState, brokers: Collection[int]) -> list[Replica]:
    return bring_online(state, state.replicas_on(brokers))
