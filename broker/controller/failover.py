"""Failover: a newly elected controller takes over the cluster as the last one left it."""

from __future__ import annotations

from broker.controller import deletion
from broker.controller.announcement import describe
from broker.controller.controller_epoch import resign_if_superseded
from broker.controller.effects import (
    DeleteMarkers,
    DeleteToolReassignments,
    DeleteTopicZnodes,
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
from broker.controller.partitions import settle_in_turns
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Leadership, Reassignment
from broker.controller.topic_ids import pin_later
from protocol.topic_partition import TopicPartition
from zk.znodes import PartitionState

# Kafka's delay from the takeover to the first look for preferred leaders.
FIRST_REBALANCE_MS = 5000


def handle_cluster_read(state: ControllerState, event: ClusterRead) -> list[Effect]:
    """Take over the cluster.

    Brokers get all brokers and all partitions before anything else. Otherwise a broker that started
    while there was no controller would deny topics that exist, as soon as it knew of brokers.

    Deletions begin before `settle` looks, which elects nobody for topics that are being deleted. A
    topic that is to be deleted is not reassigned further.
    """
    # Brokers first: whether a replica is online depends on them.
    state.is_loaded = True
    state.brokers.update({broker.id: broker for broker in event.brokers})
    state.brokers_seen.update(state.brokers)

    # A state with a later epoch: another controller is at work.
    resignation = resign_if_superseded(state, event.leadership.values())
    if resignation is not None:
        return resignation

    # Take the facts.
    _enter_states(state, event)
    reassigning = tuple(
        partition
        for partition in event.reassigning
        if partition.topic not in event.marked_for_deletion
    )
    state.reassignments.update(
        {partition: _reassignment(event, partition) for partition in reassigning}
    )

    # Bring the brokers up to date.
    marked = TopicsMarkedForDeletion(event.marked_for_deletion)
    deletion_effects = deletion.handle_topics_marked_for_deletion(state, marked)
    effects: list[Effect] = [
        *(OpenChannel(broker) for broker in event.brokers),
        *describe(state, state.brokers, state.leadership),
        *_settle_all(state),
    ]

    # Go on with the work that the last controller left.
    if reassigning:
        effects.append(Repeat(ReassignmentsDue(reassigning)))
    if event.reassignments:
        effects.append(Repeat(ReassignmentsRead(event.reassignments)))
    effects += deletion_effects
    if event.preferred_election is not None:
        effects.append(Repeat(PreferredElectionRead(event.preferred_election)))
    if state.rebalance is not None:
        effects.append(SetTimer(PreferredElectionDue(state.resignations), FIRST_REBALANCE_MS))
    return effects + pin_later(state, event.unpinned)


def _reassignment(event: ClusterRead, partition: TopicPartition) -> Reassignment:
    """Return the reassignment that the topic's node describes.

    From Kafka 2.4 on, controllers note the tool's reassignments there too, and the tool's own node
    still holds them. They must be removed from both.
    """
    in_topic_node = event.reassigning[partition]
    tool_target = event.reassignments.get(partition)
    if tool_target is None:
        return in_topic_node
    return Reassignment(in_topic_node.original, tool_target, by_tool=True)


def _settle_all(state: ControllerState) -> list[Effect]:
    """Settle every partition, first those whose leader bounced unseen.

    While there was no controller, the leader may have died and come back without its unflushed
    data: its node is younger than the partition's state. Under the same epoch it would write other
    records where its followers have the lost ones. So another replica in sync leads.

    Where there is none, the leader leads again, but under the next epoch. It stays in sync: most
    brokers that bounce lose nothing, and the other replica may itself be dead with its session not
    ended yet.
    """
    writes = {
        partition: PartitionStateWrite(
            partition, _state_after_bounce(state, partition, leadership), leadership.zk_version
        )
        for partition, leadership in state.leadership.items()
        if partition in state.partition_states and _has_bounced(state, leadership)
    }

    # Elect for the others where needed, and send every replica its state.
    others = [partition for partition in state.partitions() if partition not in writes]
    effects: list[Effect] = [WritePartitionStates(tuple(writes.values()))] if writes else []
    return effects + settle_in_turns(state, others, leader_and_isr_to=state.brokers)


def _has_bounced(state: ControllerState, leadership: Leadership) -> bool:
    """True if the leader has registered again since the state was written."""
    # The broker epoch is a czxid. So both numbers are transactions, which ZooKeeper orders.
    leader = state.brokers.get(leadership.state.leader)
    return leader is not None and -1 < leadership.mzxid < leader.epoch


def _state_after_bounce(
    state: ControllerState, partition: TopicPartition, leadership: Leadership
) -> PartitionState:
    """Elect another leader, or the bounced one under the next epoch.

    If the bounced leader leads again, the ISR keeps its dead members: the leader may have come back
    with another disk.
    """
    # Prefer a replica in sync that stayed: its log is whole.
    bounced = leadership.state.leader
    isr = leadership.state.isr
    online = state.online_replicas(partition, isr)
    leader = offline_leader(state.replicas(partition), isr, online - {bounced}, unclean=False)
    if leader is None:
        return under_next_epoch(leadership.state, bounced, isr, state.epoch)

    online_isr = tuple(broker_id for broker_id in isr if broker_id in online)
    return under_next_epoch(leadership.state, leader, online_isr, state.epoch)


def _enter_states(state: ControllerState, event: ClusterRead) -> None:
    """Enter partitions and replicas into their states.

    No replica with a state is new: the last controller may have announced it.
    """
    # A partition is NEW until a state says more.
    for topic, assignment in event.assignments.items():
        state.add_partitions(topic, assignment)

    for partition, leadership in event.leadership.items():
        if partition in state.partition_states:
            state.set_leadership(partition, leadership)

    for replica in state.replicas_of(event.leadership):
        is_alive = state.is_alive(*replica)
        state.enter_replicas([replica], ReplicaStatus.ONLINE if is_alive else ReplicaStatus.OFFLINE)


def handle_watch_fired(state: ControllerState, event: WatchFired) -> list[Effect]:
    """Read again."""
    return [event.read]


def handle_retry_due(state: ControllerState, event: RetryDue) -> list[Effect]:
    """Try again as far as it is still wanted: a late write must not undo later changes."""
    match event.effect:
        case WriteAssignments(writes):
            # Partitions that still move take their step again. A completed one is not written
            # if it has other replicas by now.
            stuck = [write.partition for write in writes if write.partition in state.reassignments]
            completed = tuple(
                write
                for write in writes
                if write.partition not in state.reassignments
                and write.replicas == state.replicas(write.partition)
            )
            retries: list[Effect] = [WriteAssignments(completed)] if completed else []
            return [*retries, Repeat(ReassignmentsDue(tuple(stuck)))] if stuck else retries

        case DeleteToolReassignments(partitions):
            # A tool may want a partition moved again meanwhile.
            completed_partitions = tuple(
                partition for partition in partitions if partition not in state.reassignments
            )
            return [DeleteToolReassignments(completed_partitions)] if completed_partitions else []

        case DeleteTopicZnodes(topic) if topic not in state.deletions:
            # Deleted meanwhile: another topic may have the name.
            return []

        case DeleteMarkers(topics):
            # A known topic's marker asks for a deletion, and goes with the topic.
            unknown = tuple(topic for topic in topics if topic not in state.assignments)
            topics = unknown if state.delete_topic_enable else topics
            return [DeleteMarkers(topics)] if topics else []

        case effect:
            # Reads, and writes that a delay does not spoil.
            return [effect]
