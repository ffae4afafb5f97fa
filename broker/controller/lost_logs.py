"""Replicas that should have a log and do not: their disk was emptied or replaced.

A broker that is asked to lead, or counts as in sync, and finds no log of the partition, says so. It
does not create an empty log: as a leader it would make its followers truncate what they have. Such
a replica is offline until it is out of the ISR. Then it follows as a new replica does.

Suppose it was elected because the others in sync with it were gone. They are in sync again then,
because it has not led since. The last replica in sync stays in the ISR, and the partition stays
without a leader, unless no replica has a log: then nothing can be lost, and the partition starts
over. A damaged log counts as lost where other replicas can supply what it lacks; but it is a log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller.effects import PartitionStateWrite
from broker.controller.leader_election import offline_leader, under_next_epoch
from broker.controller.replicas import bring_online, take_offline
from broker.controller.state import ControllerState
from protocol.special_values import NO_LEADER
from protocol.topic_partition import TopicPartition


def add_lost_logs(
    state: ControllerState,
    broker_id: int,
    partitions: Collection[TopicPartition],
    damaged: Collection[TopicPartition],
) -> None:
    """Note that the broker lost its logs of `partitions`, or has only a part of those in `damaged`.

    The caller settles the partitions afterwards.
    """
    # The last report counts: a log that was damaged may be gone.
    replicas = {(partition, broker_id) for partition in partitions}
    for partition in partitions:
        state.lost_logs.setdefault(partition, set()).add(broker_id)
    state.damaged_logs -= replicas
    state.damaged_logs |= {replica for replica in replicas if replica[0] in damaged}

    # Such a replica can neither lead nor be in sync.
    state.offline_dirs.setdefault(broker_id, set()).update(partitions)
    take_offline(state, [(partition, broker_id) for partition in partitions])

    # A partition without any log starts over on all replicas.
    for partition in partitions:
        if state.has_no_log(partition):
            _restore(state, partition, state.replicas(partition))


def restore_previous_isr(
    state: ControllerState, partitions: Collection[TopicPartition]
) -> list[PartitionStateWrite]:
    """Return states with the ISR from before the election.

    These are for the partitions where no replica in sync has a log, but one that was in sync before
    still has.
    """
    writes = []
    for partition in partitions:
        # Replicas that were in sync before the election, and have a log.
        leadership = state.leadership.get(partition)
        lost = state.lost_logs.get(partition, set())
        previous_isr = state.isr_before_election.get(partition, ())
        isr = tuple(broker_id for broker_id in previous_isr if broker_id not in lost)

        # No help if there is none, and no need if the present ISR has a log.
        if leadership is None or not isr or not lost.issuperset(leadership.state.isr):
            continue

        # One of them leads if it is online; else the partition waits (leader -1).
        online = state.online_replicas(partition, isr)
        leader = offline_leader(state.replicas(partition), isr, online, unclean=False)
        after = under_next_epoch(
            leadership.state, NO_LEADER if leader is None else leader, isr, state.epoch
        )
        writes.append(PartitionStateWrite(partition, after, leadership.zk_version))
    return writes


def let_follow(state: ControllerState, partitions: Iterable[TopicPartition]) -> None:
    """Let replicas without a log start over once they are out of the ISR.

    Call this after a state was written and before it is announced.
    """
    for partition in partitions:
        lost = state.lost_logs.get(partition)
        if lost:
            isr = state.leadership[partition].state.isr

            # Outside the ISR nobody counts on the log: the replica may begin with an empty one.
            outside = [broker_id for broker_id in lost if broker_id not in isr]
            _restore(state, partition, outside)


def remove_lost_logs(
    state: ControllerState, broker_id: int, partitions: Iterable[TopicPartition]
) -> None:
    """Note that the broker leads those of `partitions` that it should lead.

    There is a log to follow again.
    """
    for partition in partitions:
        leadership = state.leadership.get(partition)
        if leadership is not None and leadership.state.leader == broker_id:
            state.lost_logs.pop(partition, None)
            state.isr_before_election.pop(partition, None)


def _restore(state: ControllerState, partition: TopicPartition, brokers: Iterable[int]) -> None:
    for broker_id in brokers:
        state.offline_dirs.get(broker_id, set()).discard(partition)
        # A dead broker's replica comes online with its broker.
        if broker_id in state.brokers:
            bring_online(state, [(partition, broker_id)])
