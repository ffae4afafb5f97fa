"""Failover: a newly elected controller takes over the cluster as the last one left it."""

from __future__ import annotations

from broker.controller import deletion
from broker.controller.announcement import describe
from broker.controller.effects import (
    DeleteMarkers,
    DeleteTopicZnodes,
    DropReassignments,
    Effect,
    OpenChannel,
    PartitionStateWrite,
    Repeat,
    SetTimer,
    WriteAssignments,
    WritePartitionStates,
)
from broker.controller.events import (
    ClusterRead,
    PreferredElectionDue,
    PreferredElectionRead,
    ReassignmentsDue,
    ReassignmentsRead,
    RetryDue,
    TopicsMarkedForDeletion,
    WatchFired,
)
from broker.controller.leader_election import offline_leader, under_next_epoch
from broker.controller.partitions import settle
from broker.controller.reign import passed_by
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Leadership, Reassignment
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
    state.reassignments.update({each: _reassignment(event, each) for each in moving})
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


def _reassignment(event: ClusterRead, partition: TopicPartition) -> Reassignment:
    """What a topic's node tells of. Controllers from Kafka 2.4 on note the tool's there too, and
    its own node holds them all the same: who goes on must take them out of both."""
    told, wanted = event.reassigning[partition], event.reassignments.get(partition)
    return told if wanted is None else Reassignment(told.original, wanted, by_tool=True)


def _settle_all(state: ControllerState) -> list[Effect]:
    """Settle every partition, and those first whose leader bounced unseen.

    While nobody reigned it may have died and come back, without what it had not flushed: its node
    is younger than the partition's state. Under the same epoch it would write other records where
    its followers have what it lost. So another one in sync leads; and where there is none, it leads
    again, but under the next epoch. It stays in sync: most that bounce lose nothing, and the other
    may itself be dead, and its session not ended yet.
    """
    writes = {
        partition: PartitionStateWrite(
            partition, _led_anew(state, partition, known), known.zk_version
        )
        for partition, known in state.leadership.items()
        if partition in state.partition_states and _has_bounced(state, known)
    }
    others = [each for each in state.partitions() if each not in writes]
    effects: list[Effect] = [WritePartitionStates(tuple(writes.values()))] if writes else []
    return effects + settle(state, others, lead_to=state.brokers)


def _has_bounced(state: ControllerState, known: Leadership) -> bool:
    """Whether the leader has registered since the state was written."""
    leader = state.brokers.get(known.state.leader)
    return leader is not None and -1 < known.mzxid < leader.epoch


def _led_anew(
    state: ControllerState, partition: TopicPartition, known: Leadership
) -> PartitionState:
    """Alone, the leader is not trusted so far that those who are gone would leave the ISR: it may
    have come back with another disk."""
    bounced, isr = known.state.leader, known.state.isr
    online = state.online(partition, isr)
    leader = offline_leader(state.replicas(partition), isr, online - {bounced}, unclean=False)
    if leader is None:
        return under_next_epoch(known.state, bounced, isr, state.epoch)
    isr = tuple(each for each in isr if each in online)
    return under_next_epoch(known.state, leader, isr, state.epoch)


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


def retry_due(state: ControllerState, event: RetryDue) -> list[Effect]:
    """Try again, as far as it is still wanted: a late write must not take back what came since."""
    match event.effect:
        case WriteAssignments(writes):
            stuck = [each.partition for each in writes if each.partition in state.reassignments]
            arrived = tuple(
                each
                for each in writes
                if each.partition not in state.reassignments
                and each.replicas == state.replicas(each.partition)
            )
            again: list[Effect] = [WriteAssignments(arrived)] if arrived else []
            return [*again, Repeat(ReassignmentsDue(tuple(stuck)))] if stuck else again
        case DropReassignments(partitions):
            over = tuple(each for each in partitions if each not in state.reassignments)
            return [DropReassignments(over)] if over else []
        case DeleteTopicZnodes(topic) if topic not in state.deletions:
            return []
        case DeleteMarkers(topics):
            unknown = tuple(each for each in topics if each not in state.assignments)
            topics = unknown if state.delete_topic_enable else topics
            return [DeleteMarkers(topics)] if topics else []
        case effect:
            return [effect]
