"""A broker that is about to stop (controlled shutdown): its partitions are led by others first.

It stays registered until it stops, and hears of everything; but it is elected nowhere and in sync
nowhere, except where it leads and nobody can take over.
"""

from __future__ import annotations

from broker.controller.announcement import stop
from broker.controller.effects import (
    Answer,
    Effect,
    RefreshLeadership,
    Repeat,
    WritePartitionStates,
)
from broker.controller.events import ShutdownRequested, ShutdownUnderWay
from broker.controller.partition_states import PartitionStatus
from broker.controller.partitions import settle
from broker.controller.replica_states import ReplicaStatus
from broker.controller.state import ControllerState
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition


def requested(state: ControllerState, event: ShutdownRequested) -> list[Effect]:
    """Stop its followers, which else would be in sync again at once; move its leaders."""
    broker_id = event.broker_id
    broker = state.brokers.get(broker_id)
    if broker is None:
        refusal = ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not there")
        return [Answer(event.request_id, refusal)]
    if 0 <= event.broker_epoch < broker.epoch:
        refusal = ApiError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} has registered anew since"
        )
        return [Answer(event.request_id, refusal)]
    state.shutting_down.add(broker_id)
    partitions = _replicated_on(state, broker_id)
    followed = [
        (each, broker_id)
        for each in partitions
        if each in state.leadership and state.leadership[each].state.leader != broker_id
    ]
    state.enter_replicas(followed, ReplicaStatus.OFFLINE)
    return [
        *stop(state, followed, delete=False),
        RefreshLeadership(tuple(partitions)),
        Repeat(ShutdownUnderWay(event.request_id, broker_id)),
    ]


def under_way(state: ControllerState, event: ShutdownUnderWay) -> list[Effect]:
    """Move what can be moved, and then tell the broker what nobody could take over."""
    partitions = _replicated_on(state, event.broker_id)
    effects = settle(state, partitions, lead_to=None)
    if any(isinstance(each, WritePartitionStates) for each in effects):
        return [*effects, Repeat(event)]
    led = tuple(
        each
        for each in partitions
        if each in state.leadership and state.leadership[each].state.leader == event.broker_id
    )
    return [Answer(event.request_id, led)]


def _replicated_on(state: ControllerState, broker_id: int) -> list[TopicPartition]:
    """The partitions on the broker that others keep too, and that are not being deleted."""
    return [
        each
        for each, _ in state.replicas_on({broker_id})
        if len(state.replicas(each)) > 1
        and state.status(each) is not PartitionStatus.NON_EXISTENT
        and each.topic not in state.deletions
    ]
