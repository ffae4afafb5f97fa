"""Replicas that are trusted to have what they have not: their disk was emptied or replaced.

A broker that is told to lead, or is counted in sync, and finds no log of the partition, says so
instead of making an empty one: as a leader it would make its followers cut off what they have. Such
a replica is offline until it is out of the in-sync set, and follows then like one that is new.

Where it was elected because those who were in sync with it were gone, they are in sync again, for
it has not led since. The last one in sync stays in the set, and the partition without a leader,
unless no replica has a log: then there is nothing to lose, and the partition begins anew. A log
that is damaged is as good as lost where others can give again what it lacks; but it is a log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller.effects import PartitionStateWrite
from broker.controller.leader_election import offline_leader, under_next_epoch
from broker.controller.replicas import replicas_offline, replicas_online
from broker.controller.state import NO_LEADER, ControllerState
from protocol.topic_partition import TopicPartition


def note_lost(
    state: ControllerState,
    broker_id: int,
    partitions: Collection[TopicPartition],
    damaged: Collection[TopicPartition],
) -> None:
    """The broker has no logs of these, or `damaged` ones; they are to be settled now."""
    for partition in partitions:
        state.lost_logs.setdefault(partition, set()).add(broker_id)
    replicas = {(each, broker_id) for each in partitions}
    state.damaged_logs -= replicas
    state.damaged_logs |= {each for each in replicas if each[0] in damaged}
    state.offline_dirs.setdefault(broker_id, set()).update(partitions)
    replicas_offline(state, [(each, broker_id) for each in partitions])
    for partition in partitions:
        if state.is_nowhere(partition):
            _bring_back(state, partition, state.replicas(partition))


def restored(
    state: ControllerState, partitions: Collection[TopicPartition]
) -> list[PartitionStateWrite]:
    """The states of those in which nobody in sync has a log, but somebody has who was before."""
    writes = []
    for partition in partitions:
        known, lost = state.leadership.get(partition), state.lost_logs.get(partition, set())
        heirs = tuple(each for each in state.heirs.get(partition, ()) if each not in lost)
        if known is None or not heirs or not lost.issuperset(known.state.isr):
            continue
        online = state.online(partition, heirs)
        leader = offline_leader(state.replicas(partition), heirs, online, unclean=False)
        after = under_next_epoch(
            known.state, NO_LEADER if leader is None else leader, heirs, state.epoch
        )
        writes.append(PartitionStateWrite(partition, after, known.zk_version))
    return writes


def let_follow(state: ControllerState, written: Iterable[TopicPartition]) -> None:
    """Who is out of the in-sync set may begin anew; to be called before that is announced."""
    for partition in written:
        lost = state.lost_logs.get(partition)
        if lost:
            isr = state.leadership[partition].state.isr
            _bring_back(state, partition, [each for each in lost if each not in isr])


def note_led(state: ControllerState, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
    """The broker leads these: there is a log again to follow."""
    for partition in partitions:
        known = state.leadership.get(partition)
        if known is not None and known.state.leader == broker_id:
            state.lost_logs.pop(partition, None)
            state.heirs.pop(partition, None)


def _bring_back(state: ControllerState, partition: TopicPartition, brokers: Iterable[int]) -> None:
    for broker_id in brokers:
        state.offline_dirs.get(broker_id, set()).discard(partition)
        if broker_id in state.brokers:
            replicas_online(state, [(partition, broker_id)])
