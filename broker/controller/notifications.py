"""What brokers tell the controller of themselves: in-sync sets they changed, disks they lost."""

from __future__ import annotations

from broker.controller import lost_logs
from broker.controller.announcement import announce, describe, stop
from broker.controller.effects import (
    DeleteNotifications,
    Effect,
    RefreshLeadership,
    WritePartitionStates,
)
from broker.controller.events import (
    IsrChangesRead,
    LeaderAndIsrAnswered,
    LeadershipRead,
    LogDirEventsRead,
)
from broker.controller.partitions import settle
from broker.controller.reassignment import caught_up
from broker.controller.reign import passed_by
from broker.controller.replicas import replicas_offline, replicas_online
from broker.controller.state import ControllerState


def isr_changes_read(state: ControllerState, event: IsrChangesRead) -> list[Effect]:
    """Tell everybody, then take the notifications away."""
    known = tuple(each for each in event.partitions if each in state.partition_states)
    effects: list[Effect] = [RefreshLeadership(known)] if known else []
    return [*effects, DeleteNotifications(event.paths)] if event.paths else effects


def leadership_read(state: ControllerState, event: LeadershipRead) -> list[Effect]:
    """Learn what leaders wrote, and tell it; whoever has caught up completes its reassignment.

    A leader may have taken a replica back whose broker left meanwhile: that one goes again.
    """
    present = {
        each: known
        for each, known in event.states.items()
        if known is not None and each in state.partition_states
    }
    resigning = passed_by(state, present.values())
    if resigning is not None:
        return resigning
    news = [each for each, known in present.items() if state.leadership.get(each) != known]
    for each in news:
        state.heirs.pop(each, None)
        state.learn(each, present[each])
    effects = describe(state, state.brokers, news) if news else []
    return effects + settle(state, news, lead_to=None) + caught_up(state, present)


def log_dir_events_read(state: ControllerState, event: LogDirEventsRead) -> list[Effect]:
    """Tell the brokers again what they lead and follow: each answers what it has no disk for."""
    brokers = {each for each in event.brokers if each in state.brokers}
    partitions = dict.fromkeys(
        partition
        for partition, _ in (state.replicas_on(brokers) if brokers else ())
        if partition in state.leadership and partition in state.partition_states
    )
    effects = announce(state, partitions.keys(), lead_to=brokers)
    return [*effects, DeleteNotifications(event.paths)] if event.paths else effects


def leader_and_isr_answered(state: ControllerState, event: LeaderAndIsrAnswered) -> list[Effect]:
    """Replicas on disks that failed are offline, until their broker has them again."""
    broker_id = event.broker_id
    if not state.is_registered(broker_id, event.broker_epoch):
        return []
    lost_logs.note_led(state, broker_id, event.taken)
    lost = [
        each
        for each in event.lost
        if broker_id in state.replicas(each) and broker_id not in state.lost_logs.get(each, ())
    ]
    if lost:
        lost_logs.note_lost(state, broker_id, lost, event.damaged)
        writes = lost_logs.restored(state, lost)
        others = set(lost).difference(write.partition for write in writes)
        return [
            *([WritePartitionStates(tuple(writes))] if writes else []),
            *settle(state, sorted(others), lead_to=state.brokers),
            *_disks_answered(state, event),
        ]
    return _disks_answered(state, event)


def _disks_answered(state: ControllerState, event: LeaderAndIsrAnswered) -> list[Effect]:
    broker_id = event.broker_id
    offline = state.offline_dirs.setdefault(broker_id, set())
    mine = (
        {partition for partition, _ in state.replicas_on({broker_id})}
        if event.failed or offline
        else set()
    )
    gone = [p for p in event.failed if p in mine and p not in offline]
    back = [p for p in event.taken if p in offline]
    if not gone and not back:
        return []
    offline.difference_update(back)
    offline.update(gone)
    lost = [(each, broker_id) for each in gone]
    replicas_offline(state, lost)
    replicas_online(state, [(each, broker_id) for each in back])
    return [
        *stop(state, [each for each in lost if each[0] in state.partition_states], delete=False),
        *settle(state, [*gone, *back], lead_to=[broker_id] if back else []),
    ]
