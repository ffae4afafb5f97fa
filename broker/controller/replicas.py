"""Replicas that become unreachable or reachable again, with their broker or with their disk."""

from __future__ import annotations

from broker.controller import deletion
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Replica


def take_offline(state: ControllerState, replicas: list[Replica]) -> list[Replica]:
    """Mark unreachable replicas offline; those that are being deleted hold up their deletion."""
    # A partition without a state is being deleted.
    deleting = [replica for replica in replicas if replica[0] not in state.partition_states]
    deletion.mark_ineligible(state, deleting)
    state.enter_replicas(set(replicas).difference(deleting), ReplicaStatus.OFFLINE)
    return replicas


def bring_online(state: ControllerState, replicas: list[Replica]) -> list[Replica]:
    """Mark reachable replicas online. A new replica stays new until its LeaderAndIsr is sent."""
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
