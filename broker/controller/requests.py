"""The controller's effects as requests of the wire, in the version their receiver speaks.

Up to LeaderAndIsr v1, UpdateMetadata v4 and StopReplica v0 partitions stand in one flat list,
from then on they are grouped by topic (KIP-380). `partition_epoch` and `zk_version` are the
version of the partition's state node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from broker.controller.effects import (
    LedPartition,
    PartitionMetadata,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from broker.controller.state import LiveBroker
from protocol.api_key import ApiKey
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
from protocol.topic_partition import by_topic

LEADER_DURING_DELETE = -2
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Send = SendLeaderAndIsr | SendUpdateMetadata | SendStopReplica
Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@attrs.frozen
class Sender:
    """The controller as its requests name it, and its listener between brokers."""

    controller_id: int
    controller_epoch: int
    inter_broker_listener: str


# What a 2.3 broker speaks; with an older one the channel agrees on less.
HIGHEST_VERSION: Mapping[type[Send], tuple[ApiKey, int]] = {
    SendLeaderAndIsr: (ApiKey.LEADER_AND_ISR, 2),
    SendUpdateMetadata: (ApiKey.UPDATE_METADATA, 5),
    SendStopReplica: (ApiKey.STOP_REPLICA, 1),
}


def request_for(send: Send, sender: Sender, broker_epoch: int, version: int) -> Request:
    """The request that `send` asks for, for a broker registered at `broker_epoch`."""
    return RENDER[type(send)](send, sender, broker_epoch, version)


def _leader_and_isr(
    send: SendLeaderAndIsr, sender: Sender, broker_epoch: int, version: int
) -> LeaderAndIsrRequest:
    states = [_led(each) for each in send.partitions]
    leaders = (
        (leader.id, leader.endpoint(sender.inter_broker_listener)) for leader in send.live_leaders
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
            LeaderAndIsrRequestLiveLeader(broker_id=leader_id, host_name=at.host, port=at.port)
            for leader_id, at in leaders
            if at is not None
        ],
    )


def _led(each: LedPartition) -> LeaderAndIsrRequestPartitionState:
    state = each.leadership.state
    return LeaderAndIsrRequestPartitionState(
        topic_name=each.partition.topic,
        partition_index=each.partition.partition,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        partition_epoch=each.leadership.zk_version,
        replicas=each.replicas,
        is_new=each.is_new,
    )


def _update_metadata(
    send: SendUpdateMetadata, sender: Sender, broker_epoch: int, version: int
) -> UpdateMetadataRequest:
    states = [_described(each) for each in send.partitions]
    return UpdateMetadataRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker_epoch,
        ungrouped_partition_states=states if version < 5 else (),
        topic_states=[
            UpdateMetadataRequestTopicState(topic_name=topic, partition_states=group)
            for topic, group in (_states_by_topic(states) if version >= 5 else ())
        ],
        live_brokers=[_live_broker(broker) for broker in send.live_brokers],
    )


def _described(each: PartitionMetadata) -> UpdateMetadataRequestPartitionState:
    state = each.leadership.state
    return UpdateMetadataRequestPartitionState(
        topic_name=each.partition.topic,
        partition_index=each.partition.partition,
        controller_epoch=state.controller_epoch,
        leader=LEADER_DURING_DELETE if each.is_being_deleted else state.leader,
        leader_epoch=state.leader_epoch,
        isr=state.isr,
        zk_version=each.leadership.zk_version,
        replicas=each.replicas,
        offline_replicas=each.offline_replicas,
    )


def _live_broker(broker: LiveBroker) -> UpdateMetadataRequestLiveBroker:
    plaintext = (each for each in broker.endpoints if each.security_protocol == "PLAINTEXT")
    oldest = next(plaintext, None)
    return UpdateMetadataRequestLiveBroker(
        id=broker.id,
        v0_host=oldest.host if oldest else "",
        v0_port=oldest.port if oldest else -1,
        endpoints=[
            UpdateMetadataRequestEndpoint(
                port=each.port,
                host=each.host,
                listener=each.listener,
                security_protocol=SECURITY_PROTOCOLS[each.security_protocol],
            )
            for each in broker.endpoints
        ],
        rack=broker.rack,
    )


def _stop_replica(
    send: SendStopReplica, sender: Sender, broker_epoch: int, version: int
) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.controller_epoch,
        broker_epoch=broker_epoch,
        delete_partitions=send.delete,
        ungrouped_partitions=[
            StopReplicaRequestUngroupedPartition(topic_name=topic, partition_index=partition)
            for topic, partition in (send.partitions if version < 1 else ())
        ],
        topics=[
            StopReplicaRequestTopic(name=topic, partition_indexes=[p.partition for p in same_topic])
            for topic, same_topic in (by_topic(send.partitions) if version >= 1 else ())
        ],
    )


S = TypeVar("S", LeaderAndIsrRequestPartitionState, UpdateMetadataRequestPartitionState)


def _states_by_topic(states: Iterable[S]) -> list[tuple[str, list[S]]]:
    grouped: dict[str, list[S]] = {}
    for state in states:
        grouped.setdefault(state.topic_name, []).append(state)
    return list(grouped.items())


RENDER: Mapping[type[Send], Callable[[Any, Sender, int, int], Request]] = {
    SendLeaderAndIsr: _leader_and_isr,
    SendUpdateMetadata: _update_metadata,
    SendStopReplica: _stop_replica,
}
