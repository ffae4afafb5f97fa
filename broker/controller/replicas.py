"""Replicas that can be reached no more, or again: with their broker, or with their disk."""

from __future__ import annotations

from broker.controller import deletion
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState, Replica


def replicas_offline(state: ControllerState, replicas: list[Replica]) -> list[Replica]:
    """These replicas cannot be reached: they are offline, or hold up a deletion."""
    deleting = [each for each in replicas if each[0] not in state.partition_states]
    deletion.hold_up(state, deleting)
    state.enter_replicas(set(replicas).difference(deleting), ReplicaStatus.OFFLINE)
    return replicas


def replicas_online(state: ControllerState, replicas: list[Replica]) -> list[Replica]:
    """These replicas are there again; a new one stays new until it was told what it is."""
    deleting = [each for each in replicas if each[0] not in state.partition_states]
    deletion.let_go_on(state, deleting)
    back = [
        each
        for each in replicas
        if each[0] in state.partition_states and state.replica_status(each) is not ReplicaStatus.NEW
    ]
    state.enter_replicas(back, ReplicaStatus.ONLINE)
    return replicas
