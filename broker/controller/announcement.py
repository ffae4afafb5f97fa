"""Whom to tell what of the partitions: the controller's requests as effects, in safe order.

A broker must know a leader's address before it is told to follow it, so whoever is new gets its
UpdateMetadata first (`describe`), in a list before any LeaderAndIsr (`announce`). Among the
requests of one announcement LeaderAndIsr comes first: a client that reads fresh metadata should
find a leader that knows it leads. Replicas are stopped (`stop`) after both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller.effects import (
    Effect,
    LedPartition,
    PartitionMetadata,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from broker.controller.partition_states import PartitionStatus
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Replica
from protocol.topic_partition import TopicPartition


def announce(
    state: ControllerState, partitions: Collection[TopicPartition], *, lead_to: Collection[int]
) -> list[Effect]:
    """LeaderAndIsr to the registered replicas among `lead_to`, UpdateMetadata to every broker.

    A replica that is new, or of a partition that is nowhere any more, may create its log.
    """
    led: dict[int, list[LedPartition]] = {}
    for partition in partitions:
        replicas, leadership = state.replicas(partition), state.leadership[partition]
        for broker_id in replicas:
            if broker_id in lead_to and broker_id in state.brokers:
                status = state.replica_status((partition, broker_id))
                is_new = status is ReplicaStatus.NEW or state.is_nowhere(partition)
                each = LedPartition(partition, leadership, replicas, is_new)
                led.setdefault(broker_id, []).append(each)
    effects: list[Effect] = [_lead(state, broker_id, led[broker_id]) for broker_id in sorted(led)]
    if partitions:
        effects += describe(state, state.brokers, partitions)
    return effects


def describe(
    state: ControllerState, brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> list[Effect]:
    """One UpdateMetadata for all of `brokers`; without partitions it tells who lives."""
    to = tuple(sorted(broker_id for broker_id in brokers if broker_id in state.brokers))
    if not to:
        return []
    live = tuple(state.brokers[broker_id] for broker_id in sorted(state.brokers))
    known = (each for each in partitions if each in state.leadership)
    return [SendUpdateMetadata(to, tuple(_metadata(state, each) for each in known), live)]


def stop(state: ControllerState, replicas: Iterable[Replica], *, delete: bool) -> list[Effect]:
    """StopReplica to those brokers that are registered."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for partition, broker_id in sorted(replicas):
        if broker_id in state.brokers:
            by_broker.setdefault(broker_id, []).append(partition)
    return [
        SendStopReplica(broker_id, tuple(by_broker[broker_id]), delete)
        for broker_id in sorted(by_broker)
    ]


def _lead(
    state: ControllerState, broker_id: int, partitions: list[LedPartition]
) -> SendLeaderAndIsr:
    leaders = {each.leadership.state.leader for each in partitions}
    live_leaders = tuple(state.brokers[each] for each in sorted(leaders & state.brokers.keys()))
    return SendLeaderAndIsr(broker_id, tuple(partitions), live_leaders)


def _metadata(state: ControllerState, partition: TopicPartition) -> PartitionMetadata:
    replicas = state.replicas(partition)
    return PartitionMetadata(
        partition,
        state.leadership[partition],
        replicas,
        tuple(replica for replica in replicas if not state.is_online(partition, replica)),
        state.status(partition) is PartitionStatus.NON_EXISTENT,
    )
