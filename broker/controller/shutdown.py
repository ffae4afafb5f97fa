"""Controlled shutdown: other brokers take over the partitions of a broker that is about to stop.

The broker stays registered until it stops, and gets every request. But it is elected nowhere and in
sync nowhere, except where it leads and no other replica can take over.
"""

from __future__ import annotations

from broker.controller.announcement import stop
from broker.controller.effects import (
    Effect,
    RefreshLeadership,
    Repeat,
    Reply,
    WritePartitionStates,
)
from broker.controller.events import ShutdownRequested, ShutdownStep
from broker.controller.partition_states import PartitionStatus
from broker.controller.partitions import settle
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition


def handle_shutdown_requested(state: ControllerState, event: ShutdownRequested) -> list[Effect]:
    """Stop the broker's followers, and move its leaders.

    Followers that ran on would be in sync again at once.
    """
    broker_id = event.broker_id
    broker = state.brokers.get(broker_id)
    if broker is None:
        refusal = ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not there")
        return [Reply(event.request_id, refusal)]

    # A request from before the broker bounced; versions 0 and 1 name no epoch (-1).
    if 0 <= event.broker_epoch < broker.epoch:
        refusal = ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has registered again since"
        )
        return [Reply(event.request_id, refusal)]

    # From now on it is elected nowhere.
    state.shutting_down.add(broker_id)
    partitions = _replicated_on(state, broker_id)

    # Its followers stop now; its leaders move in the step, by states that are read first.
    followers = [
        (partition, broker_id)
        for partition in partitions
        if partition in state.leadership and state.leadership[partition].state.leader != broker_id
    ]
    state.enter_replicas(followers, ReplicaStatus.OFFLINE)
    return [
        *stop(state, followers, delete=False),
        RefreshLeadership(tuple(partitions)),
        Repeat(ShutdownStep(event.request_id, broker_id)),
    ]


def handle_shutdown_step(state: ControllerState, event: ShutdownStep) -> list[Effect]:
    """Move as many leaders as possible, then reply with the partitions that stay."""
    # Look again after each write: a leader may have written its state meanwhile.
    partitions = _replicated_on(state, event.broker_id)
    effects = settle(state, partitions, leader_and_isr_to=None)
    if any(isinstance(effect, WritePartitionStates) for effect in effects):
        return [*effects, Repeat(event)]

    # No election is left that could be written.
    remaining = tuple(
        partition
        for partition in partitions
        if partition in state.leadership
        and state.leadership[partition].state.leader == event.broker_id
    )
    return [Reply(event.request_id, remaining)]


def _replicated_on(state: ControllerState, broker_id: int) -> list[TopicPartition]:
    """Return the broker's partitions with other replicas, except those that are being deleted."""
    return [
        partition
        for partition, _ in state.replicas_on({broker_id})
        if len(state.replicas(partition)) > 1
        and state.status(partition) is not PartitionStatus.NON_EXISTENT
        and partition.topic not in state.deletions
    ]
