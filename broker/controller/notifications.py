"""Reports of brokers to the controller: ISRs that they changed, disks that they lost."""

from __future__ import annotations

from broker.controller import deletion, lost_logs
from broker.controller.announcement import announce, describe, stop
from broker.controller.controller_epoch import resign_if_superseded
from broker.controller.effects import (
    DeleteNotifications,
    Effect,
    RefreshLeadership,
    WritePartitionStates,
)
from broker.controller.events import (
    IsrChangesRead,
    LeaderAndIsrResponseReceived,
    LeadershipRead,
    LogDirEventsRead,
)
from broker.controller.partitions import settle
from broker.controller.reassignment import advance_caught_up
from broker.controller.replicas import bring_online, end_new_state, take_offline
from broker.controller.state import ControllerState


def handle_isr_changes_read(state: ControllerState, event: IsrChangesRead) -> list[Effect]:
    """Read the changed ISRs, and delete the notifications afterwards."""
    # A topic that is being deleted has no state here.
    known = tuple(
        partition for partition in event.partitions if partition in state.partition_states
    )
    effects: list[Effect] = [RefreshLeadership(known)] if known else []
    return [*effects, DeleteNotifications(event.paths)] if event.paths else effects


def handle_leadership_read(state: ControllerState, event: LeadershipRead) -> list[Effect]:
    """Take the states that leaders wrote, and publish them.

    A replica that is taken back although its broker left is taken out again. Reassignments whose
    target has caught up go on.
    """
    # Partitions that still exist, and are not being deleted.
    present = {
        partition: leadership
        for partition, leadership in event.states.items()
        if leadership is not None and partition in state.partition_states
    }
    resignation = resign_if_superseded(state, present.values())
    if resignation is not None:
        return resignation

    # A leader that writes its state leads: its own election is confirmed.
    changed = [
        partition
        for partition, leadership in present.items()
        if state.leadership.get(partition) != leadership
    ]
    for partition in changed:
        state.isr_before_election.pop(partition, None)
        state.set_leadership(partition, present[partition])

    # Brokers pass the new states on to clients.
    effects = describe(state, state.brokers, changed) if changed else []

    # A leader may have taken a broker back into the ISR that has left meanwhile.
    effects += settle(state, changed, leader_and_isr_to=None)
    return effects + advance_caught_up(state, present)


def handle_log_dir_events_read(state: ControllerState, event: LogDirEventsRead) -> list[Effect]:
    """Send these brokers their LeaderAndIsr again.

    Each response names the replicas whose disk has failed.
    """
    # A broker that has gone meanwhile needs no request.
    brokers = {broker_id for broker_id in event.brokers if broker_id in state.brokers}
    partitions = dict.fromkeys(
        partition
        for partition, _ in (state.replicas_on(brokers) if brokers else ())
        if partition in state.leadership and partition in state.partition_states
    )
    effects = announce(state, partitions.keys(), leader_and_isr_to=brokers)
    # A full disk may have room again: a topic that it kept from being deleted would wait for the
    # broker's next start.
    effects += deletion.ask_again(state, brokers)
    return [*effects, DeleteNotifications(event.paths)] if event.paths else effects


def handle_leader_and_isr_response_received(
    state: ControllerState, event: LeaderAndIsrResponseReceived
) -> list[Effect]:
    """Note which replicas the broker can serve.

    Replicas on failed disks, and those without a log, are offline until the broker has them again.
    """
    broker_id = event.broker_id
    if not state.is_registered(broker_id, event.broker_epoch):
        return []

    end_new_state(state, broker_id, event.taken)
    lost_logs.remove_lost_logs(state, broker_id, event.taken)

    # Take each report once: LeaderAndIsr may be sent again before a loss is settled.
    newly_lost = [
        partition
        for partition in event.lost
        if broker_id in state.replicas(partition)
        and broker_id not in state.lost_logs.get(partition, ())
    ]
    if not newly_lost:
        return _handle_failed_disks(state, event)

    # Go back to the previous ISR where that helps; elect another leader elsewhere.
    lost_logs.add_lost_logs(state, broker_id, newly_lost, event.damaged)
    writes = lost_logs.restore_previous_isr(state, newly_lost)
    others = set(newly_lost).difference(write.partition for write in writes)
    return [
        *([WritePartitionStates(tuple(writes))] if writes else []),
        *settle(state, sorted(others), leader_and_isr_to=state.brokers),
        *_handle_failed_disks(state, event),
    ]


def _handle_failed_disks(
    state: ControllerState, event: LeaderAndIsrResponseReceived
) -> list[Effect]:
    broker_id = event.broker_id
    offline = state.offline_dirs.setdefault(broker_id, set())

    # Nearly always no disk has failed: then spare the walk over all partitions.
    on_broker = (
        {partition for partition, _ in state.replicas_on({broker_id})}
        if event.failed or offline
        else set()
    )

    # What is news of these disks.
    gone = [
        partition
        for partition in event.failed
        if partition in on_broker and partition not in offline
    ]
    returned = [partition for partition in event.taken if partition in offline]
    if not gone and not returned:
        return []

    # Note the disks first: elections look there.
    offline.difference_update(returned)
    offline.update(gone)
    gone_replicas = [(partition, broker_id) for partition in gone]
    take_offline(state, gone_replicas)
    bring_online(state, [(partition, broker_id) for partition in returned])

    # Replicas of a topic that is being deleted are not stopped, but deleted later.
    stopping = [replica for replica in gone_replicas if replica[0] in state.partition_states]
    return [
        *stop(state, stopping, delete=False),
        *settle(state, [*gone, *returned], leader_and_isr_to=[broker_id] if returned else []),
    ]
