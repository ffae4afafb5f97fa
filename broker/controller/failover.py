"""Failover: a newly elected controller takes over the cluster as the last one left it."""

from __future__ import annotations

from broker.controller import deletion
from broker.controller.announcement import describe
from broker.controller.effects import (
    Effect,
    OpenChannel,
    PartitionStateWrite,
    Repeat,
    SetTimer,
    WritePartitionStates,
)
from broker.controller.events import (
    ClusterRead,
    PreferredElectionDue,
    PreferredElectionRead,
    ReassignmentsDue,
    ReassignmentsRead,
    TopicsMarkedForDeletion,
    WatchFired,
)
from broker.controller.leader_election import next_state, offline_leader, under_next_epoch
from broker.controller.partitions import settle
from broker.controller.reign import passed_by
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import NO_LEADER, ControllerState, Leadership
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState

FIRST_REBALANCE_MS = 5000


def cluster_read(state: ControllerState, event: ClusterRead) -> list[Effect]:
    """Brokers hear who lives, and of all there is, before anything else: one that started while
    nobody reigned would deny topics that exist, as soon as it knew of brokers.

    Deletions are begun before `settle` looks, which elects nobody for what is to go; a topic that
    is to go is moved no further.
    """
    state.is_loaded = True
    state.brokers.update({broker.id: broker for broker in event.brokers})
    state.brokers_seen.update(state.brokers)
    resigning = passed_by(state, event.leadership.values())
    if resigning is not None:
        return resigning
    _enter_states(state, event)
    moving = tuple(p for p in event.reassigning if p.topic not in event.marked_for_deletion)
    state.reassignments.update({each: event.reassigning[each] for each in moving})
    deleting = deletion.marked(state, TopicsMarkedForDeletion(event.marked_for_deletion))
    effects: list[Effect] = [
        *(OpenChannel(broker) for broker in event.brokers),
        *describe(state, state.brokers, state.leadership),
        *_settle_all(state),
    ]
    effects += [Repeat(ReassignmentsDue(moving))] if moving else []
    if event.reassignments:
        effects.append(Repeat(ReassignmentsRead(event.reassignments)))
    effects += deleting
    if event.preferred_election is not None:
        effects.append(Repeat(PreferredElectionRead(event.preferred_election)))
    if state.rebalance is not None:
        effects.append(SetTimer(PreferredElectionDue(state.reign), FIRST_REBALANCE_MS))
    return effects


def _settle_all(state: ControllerState) -> list[Effect]:
    """Settle every partition, and those first of which brokers bounced unseen.

    While nobody reigned a broker may have died and come back, without what it had not flushed: its
    node is younger than the partition's state, which still has it as the leader or in sync. It is
    led by another then, and has to earn its place in sync. Under the same epoch it would write
    other records where its followers have what it lost; so should nobody else be in sync, it leads
    again, but under the next one.
    """
    writes = {
        partition: PartitionStateWrite(
            partition, _after_bounce(state, partition, known, bounced), known.zk_version
        )
        for partition, known in state.leadership.items()
        if partition in state.partition_states and (bounced := _bounced(state, known))
    }
    others = [each for each in state.partitions() if each not in writes]
    effects: list[Effect] = [WritePartitionStates(tuple(writes.values()))] if writes else []
    return effects + settle(state, others, lead_to=state.brokers)


def _bounced(state: ControllerState, known: Leadership) -> set[int]:
    """The brokers of the state that have registered since it was written."""
    return {
        each
        for each in {known.state.leader, *known.state.isr}
        if each in state.brokers and -1 < known.mzxid < state.brokers[each].epoch
    }


def _after_bounce(
    state: ControllerState, partition: TopicPartition, known: Leadership, bounced: set[int]
) -> PartitionState:
    replicas, isr = state.replicas(partition), known.state.isr
    online = state.online(partition, {*replicas, *isr})
    after = next_state(known.state, replicas, online - bounced, state.epoch)
    if after is not None and after.leader != NO_LEADER:
        return after
    leader = offline_leader(replicas, isr, online, unclean=False)
    return under_next_epoch(known.state, NO_LEADER if leader is None else leader, isr, state.epoch)


def _enter_states(state: ControllerState, event: ClusterRead) -> None:
    """What was new to the last controller counts as known: it may have told."""
    for topic, assignment in event.assignments.items():
        state.add_partitions(topic, assignment)
    for partition, known in event.leadership.items():
        if partition in state.partition_states:
            state.learn(partition, known)
    for replica in state.replicas_of(event.leadership):
        is_online = state.is_alive(*replica)
        state.enter_replicas(
            [replica], ReplicaStatus.ONLINE if is_online else ReplicaStatus.OFFLINE
        )


def watch_fired(state: ControllerState, event: WatchFired) -> list[Effect]:
    """Read again what changed."""
    return [event.read]
