"""Turn the controller's effects into requests of the wire, in the version their receiver speaks.

Up to LeaderAndIsr v1, UpdateMetadata v4 and StopReplica v0 partitions stand in one flat list. From
the next versions on they are grouped by topic (KIP-380). `partition_epoch` and `zk_version` are the
version of the partition's state node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from broker.controller.effects import (
    LeaderAndIsrPartition,
    PartitionMetadata,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from broker.controller.state import RegisteredBroker
from protocol.api_key import ApiKey
from protocol.frozen import frozen
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestLiveLeader,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrRequestTopicState,
)
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestTopic,
    StopReplicaRequestUngroupedPartition,
)
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
)
from protocol.security_protocol import SecurityProtocol
from protocol.special_values import LEADER_DURING_DELETE
from protocol.topic_partition import by_topic

ControlEffect = SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica
ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@frozen
class ControllerIdentity:
    """The sender of control requests, and its names of the listeners of brokers.

    `inter_broker_listener` is for connections between brokers, `controller_listener` for those of
    the controller.
    """

    controller_id: int
    controller_epoch: int
    inter_broker_listener: str
    controller_listener: str


HIGHEST_VERSION: Mapping[type[ControlEffect], tuple[ApiKey, int]] = {
    SendLeaderAndIsr: (ApiKey.LEADER_AND_ISR, 2),
    SendUpdateMetadata: (ApiKey.UPDATE_METADATA, 5),
    SendStopReplica: (ApiKey.STOP_REPLICA, 1),
}
"""The versions of a 2.3 broker. The channel uses lower ones with an older broker."""


def render_request(
    effect: ControlEffect, sender: ControllerIdentity, broker_epoch: int, version: int
) -> ControlRequest:
    """Return the request of `effect` to a broker that registered with `broker_epoch`."""
    return RENDER[type(effect)](effect, sender, broker_epoch, version)


# --- LeaderAndIsr ----------------------------------------------------------------------------


def _leader_and_isr(
    effect: SendLeaderAndIsr, sender: ControllerIdentity, broker_epoch: int, version: int
) -> LeaderAndIsrRequest:
    states = [_led_partition(led) for led in effect.partitions]

    # Brokers reach each other by one listener; a leader without it is left out.
    leaders = (
        (leader.id, leader.endpoint(sender.inter_broker_listener)) for leader in effect.live_leaders
    )

    return LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker_epoch,
        ungrouped_partition_states=states if version < 2 else (),
        topic_states=[
            LeaderAndIsrRequestTopicState(topic_name=topic, partition_states=group)
            for topic, group in (_states_by_topic(states) if version >= 2 else ())
        ],
        live_leaders=[
            LeaderAndIsrRequestLiveLeader(
                broker_id=leader_id, host_name=endpoint.host, port=endpoint.port
            )
            for leader_id, endpoint in leaders
            if endpoint is not None
        ],
    )


def _led_partition(led: LeaderAndIsrPartition) -> LeaderAndIsrRequestPartitionState:
    state = led.leadership.state
    return LeaderAndIsrRequestPartitionState(
        topic_name=led.partition.topic,
        partition_index=led.partition.partition,
        # Of the controller that wrote the state, perhaps an earlier one.
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=led.leadership.zk_version,
        replicas=led.replicas,
        is_new=led.is_new,
    )


# --- UpdateMetadata --------------------------------------------------------------------------


def _update_metadata(
    effect: SendUpdateMetadata, sender: ControllerIdentity, broker_epoch: int, version: int
) -> UpdateMetadataRequest:
    states = [_partition_metadata(metadata) for metadata in effect.partitions]
    return UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker_epoch,
        ungrouped_partition_states=states if version < 5 else (),
        topic_states=[
            UpdateMetadataRequestTopicState(topic_name=topic, partition_states=group)
            for topic, group in (_states_by_topic(states) if version >= 5 else ())
        ],
        live_brokers=[_live_broker(broker) for broker in effect.live_brokers],
    )


def _partition_metadata(metadata: PartitionMetadata) -> UpdateMetadataRequestPartitionState:
    state = metadata.leadership.state
    return UpdateMetadataRequestPartitionState(
        topic_name=metadata.partition.topic,
        partition_index=metadata.partition.partition,
        controller_epoch=state.controller_epoch,
        # Leader -2 has brokers remove the partition from their metadata.
        leader=LEADER_DURING_DELETE if metadata.is_being_deleted else state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        zk_version=metadata.leadership.zk_version,
        replicas=metadata.replicas,
        offline_replicas=metadata.offline_replicas,
    )


def _live_broker(broker: RegisteredBroker) -> UpdateMetadataRequestLiveBroker:
    # v0 knows one address a broker, which is PLAINTEXT.
    plaintext = (
        endpoint for endpoint in broker.endpoints if endpoint.security_protocol == "PLAINTEXT"
    )
    v0_endpoint = next(plaintext, None)

    return UpdateMetadataRequestLiveBroker(
        id=broker.id,
        v0_host=v0_endpoint.host if v0_endpoint else "",
        v0_port=v0_endpoint.port if v0_endpoint else -1,
        endpoints=[
            UpdateMetadataRequestEndpoint(
                port=endpoint.port,
                host=endpoint.host,
                listener=endpoint.listener,
                security_protocol=SecurityProtocol[endpoint.security_protocol],
            )
            for endpoint in broker.endpoints
        ],
        rack=broker.rack,
    )


# --- StopReplica -----------------------------------------------------------------------------


def _stop_replica(
    effect: SendStopReplica, sender: ControllerIdentity, broker_epoch: int, version: int
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker_epoch,
        delete_partitions=effect.delete,
        ungrouped_partitions=[
            StopReplicaRequestUngroupedPartition(topic_name=topic, partition_index=partition)
            for topic, partition in (effect.partitions if version < 1 else ())
        ],
        topics=[
            StopReplicaRequestTopic(
                name=topic, partition_indexes=[partition.partition for partition in partitions]
            )
            for topic, partitions in (by_topic(effect.partitions) if version >= 1 else ())
        ],
    )


S = TypeVar("S", LeaderAndIsrRequestPartitionState, UpdateMetadataRequestPartitionState)


def _states_by_topic(states: Iterable[S]) -> list[tuple[str, list[S]]]:
    grouped: dict[str, list[S]] = {}
    for state in states:
        grouped.setdefault(state.topic_name, []).append(state)
    return list(grouped.items())


RENDER: Mapping[
    type[ControlEffect], Callable[[Any, ControllerIdentity, int, int], ControlRequest]
] = {
    SendLeaderAndIsr: _leader_and_isr,
    SendUpdateMetadata: _update_metadata,
    SendStopReplica: _stop_replica,
}
