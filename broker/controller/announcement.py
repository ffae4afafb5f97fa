"""The controller's requests to brokers as effects, in a safe order.

A broker must know a leader's address before it is asked to follow it. So a new broker gets its
UpdateMetadata first (`describe`), in a list before any LeaderAndIsr (`announce`). Within one
announcement LeaderAndIsr comes first: a client that reads fresh metadata should find a leader that
knows it leads. Replicas are stopped (`stop`) after both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.controller.effects import (
    Effect,
    LeaderAndIsrPartition,
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
    state: ControllerState,
    partitions: Collection[TopicPartition],
    *,
    leader_and_isr_to: Collection[int],
) -> list[Effect]:
    """Send LeaderAndIsr to the replicas among `leader_and_isr_to`, and UpdateMetadata to all.

    A replica may create its log if it is new, or if the partition has no log anywhere.
    """
    # One request for each broker, with all of its partitions.
    by_broker: dict[int, list[LeaderAndIsrPartition]] = {}
    for partition in partitions:
        replicas = state.replicas(partition)
        leadership = state.leadership[partition]
        for broker_id in replicas:
            if broker_id in leader_and_isr_to and broker_id in state.brokers:
                status = state.replica_status((partition, broker_id))
                # Any other log that is missing is a loss, which the broker reports (lost_logs).
                is_new = status is ReplicaStatus.NEW or state.has_no_log(partition)
                led = LeaderAndIsrPartition(partition, leadership, replicas, is_new)
                by_broker.setdefault(broker_id, []).append(led)

    # In the order of broker ids: equal states have equal effects.
    effects: list[Effect] = [
        _leader_and_isr(state, broker_id, by_broker[broker_id]) for broker_id in sorted(by_broker)
    ]

    # Any broker may be asked for the metadata of any partition.
    if partitions:
        effects += describe(state, state.brokers, partitions)
    return effects


def describe(
    state: ControllerState, brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> list[Effect]:
    """Send one UpdateMetadata to all of `brokers`; without partitions it lists the live brokers."""
    receivers = tuple(sorted(broker_id for broker_id in brokers if broker_id in state.brokers))
    if not receivers:
        return []

    # The receiver replaces its list of live brokers, so it is sent whole.
    live_brokers = tuple(state.brokers[broker_id] for broker_id in sorted(state.brokers))

    # A partition that never had a leader is left out, as in Kafka.
    metadata = tuple(
        _metadata(state, partition) for partition in partitions if partition in state.leadership
    )
    return [SendUpdateMetadata(receivers, metadata, live_brokers)]


def stop(state: ControllerState, replicas: Iterable[Replica], *, delete: bool) -> list[Effect]:
    """Send StopReplica to those of the replicas' brokers that are registered."""
    by_broker: dict[int, list[TopicPartition]] = {}
    for partition, broker_id in sorted(replicas):
        if broker_id in state.brokers:
            by_broker.setdefault(broker_id, []).append(partition)

    return [
        SendStopReplica(broker_id, tuple(by_broker[broker_id]), delete)
        for broker_id in sorted(by_broker)
    ]


def _leader_and_isr(
    state: ControllerState, broker_id: int, partitions: list[LeaderAndIsrPartition]
) -> SendLeaderAndIsr:
    # A field of the protocol: the addresses of the leaders that live.
    leaders = {partition.leadership.state.leader for partition in partitions}
    live_leaders = tuple(state.brokers[leader] for leader in sorted(leaders & state.brokers.keys()))
    return SendLeaderAndIsr(broker_id, tuple(partitions), live_leaders)


def _metadata(state: ControllerState, partition: TopicPartition) -> PartitionMetadata:
    replicas = state.replicas(partition)
    return PartitionMetadata(
        partition,
        state.leadership[partition],
        replicas,
        tuple(replica for replica in replicas if not state.is_online(partition, replica)),
        # True during the deletion: the request says leader -2 then.
        state.status(partition) is PartitionStatus.NON_EXISTENT,
    )
