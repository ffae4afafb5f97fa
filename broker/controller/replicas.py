"""Replicas that become unreachable or reachable again, with their broker or with their disk."""

from __future__ import annotations

from collections.abc import Iterable

from broker.controller import deletion
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Replica
from protocol.topic_partition import TopicPartition


def take_offline(state: ControllerState, replicas: list[Replica]) -> list[Replica]:
    """Mark unreachable replicas offline; those that are being deleted hold up their deletion."""
    # A partition without a state is being deleted.
    deleting = [replica for replica in replicas if replica[0] not in state.partition_states]
    deletion.mark_ineligible(state, deleting)
    state.enter_replicas(set(replicas).difference(deleting), ReplicaStatus.OFFLINE)
    return replicas


def bring_online(state: ControllerState, replicas: list[Replica]) -> list[Replica]:
    """Mark reachable replicas online. A new replica stays new until its broker has its log."""
    deleting = [replica for replica in replicas if replica[0] not in state.partition_states]
    deletion.mark_eligible(state, deleting)

    returned = [
        replica
        for replica in replicas
        if replica[0] in state.partition_states
        and state.replica_status(replica) is not ReplicaStatus.NEW
    ]
    state.enter_replicas(returned, ReplicaStatus.ONLINE)
    return replicas


def is_new(state: ControllerState, replica: Replica) -> bool:
    """Return whether the replica may not have made its log, and its partition has a state."""
    return (
        state.replica_status(replica) is ReplicaStatus.NEW and replica[0] in state.partition_states
    )


def end_new_state(
    state: ControllerState, broker_id: int, partitions: Iterable[TopicPartition]
) -> None:
    """Take replicas out of NEW: they have their logs, and from now on lack one by a loss.

    A LeaderAndIsr that was sent says nothing: its broker may have died before it made the log.
    Replicas of a partition that is being reassigned stay NEW.
    """
    confirmed = [
        (partition, broker_id)
        for partition in partitions
        if state.replica_status((partition, broker_id)) is ReplicaStatus.NEW
        and partition not in state.reassignments
    ]
    state.enter_replicas(confirmed, ReplicaStatus.ONLINE)
