"""Brokers that come, go, move and return."""

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
from broker.controller.events import BrokersChanged, ReassignmentsDue
from broker.controller.partitions import settle
from broker.controller.replicas import replicas_offline, replicas_online
from broker.controller.state import ControllerState, Replica
from protocol.topic_partition import TopicPartition


def brokers_changed(state: ControllerState, event: BrokersChanged) -> list[Effect]:
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
    state.brokers.clear()
    state.brokers.update({each: now[each] for each in sorted(now.keys() - bounced)})
    state.brokers_seen.update(new)
    left = {partition for partition, _ in _replicas_go(state, gone)}
    touched = {
        *left,
        *(partition for partition, _ in _replicas_come(state, new)),
        *state.leaderless(),
    }
    effects: list[Effect] = [CloseChannel(each) for each in sorted(gone | moved)]
    effects += [OpenChannel(now[each]) for each in sorted(new | moved)]
    effects += describe(state, known, ())
    effects += describe(state, new, state.partitions())
    effects += settle(state, sorted(touched), lead_to=new)
    waiting = tuple(p for p, each in state.reassignments.items() if new & set(each.target))
    effects += [Repeat(ReassignmentsDue(waiting))] if waiting else []
    for topic in sorted(state.deletions):
        effects += deletion.pursue(state, topic)
    effects += _look_again(state, left, effects)
    return [*effects, Repeat(event)] if bounced else effects


def _replicas_go(state: ControllerState, brokers: Collection[int]) -> list[Replica]:
    """The replicas of brokers that went. What they were doing, or had broken, is over."""
    state.shutting_down.difference_update(brokers)
    for each in brokers:
        state.offline_dirs.pop(each, None)
        for lost in state.lost_logs.values():
            lost.discard(each)
    return replicas_offline(state, state.replicas_on(brokers))


def _look_again(
    state: ControllerState, left: Iterable[TopicPartition], effects: Iterable[Effect]
) -> list[Effect]:
    """Read what is not written though its leader is there, which may have taken the broker back
    into the in-sync set unheard: the last fetch came after the controller's word."""
    written = {
        write.partition
        for each in effects
        if isinstance(each, WritePartitionStates)
        for write in each.writes
    }
    led = (
        each
        for each in left
        if each in state.leadership and state.leadership[each].state.leader in state.brokers
    )
    unsure = sorted(each for each in led if each not in written)
    return [RefreshLeadership(tuple(unsure))] if unsure else []


def _replicas_come(state: ControllerState, brokers: Collection[int]) -> list[Replica]:
    return replicas_online(state, state.replicas_on(brokers))
