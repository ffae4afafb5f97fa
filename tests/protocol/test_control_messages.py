"""LeaderAndIsr, UpdateMetadata and StopReplica, held to bytes written by Apache Kafka 2.8.2.

The bytes are what Kafka's own classes made of the values below.
"""

from __future__ import annotations

import pytest

from protocol.encoding import decode, encode
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrRequestLiveLeader,
    LeaderAndIsrRequestPartitionState,
    LeaderAndIsrRequestTopicState,
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
)
from protocol.messages.stop_replica import (
    StopReplicaRequest,
    StopReplicaRequestTopic,
    StopReplicaRequestUngroupedPartition,
    StopReplicaResponse,
    StopReplicaResponsePartitionError,
)
from protocol.messages.update_metadata import (
    UpdateMetadataRequest,
    UpdateMetadataRequestEndpoint,
    UpdateMetadataRequestLiveBroker,
    UpdateMetadataRequestPartitionState,
    UpdateMetadataRequestTopicState,
    UpdateMetadataResponse,
)

BY_KAFKA = {
    ("LeaderAndIsrRequest", 0): (
        "000000010000000600000002000374c3a9000000000000000500000002000000070000000200000002000000"
        "030000000900000003000000020000000300000004000374c3a9000000010000000500000002000000070000"
        "0002000000020000000300000009000000030000000200000003000000040000000100000002000168000023"
        "84"
    ),
    ("LeaderAndIsrResponse", 0): "000000000001000374c3a900000001000b",
    ("LeaderAndIsrRequest", 1): (
        "000000010000000600000002000374c3a9000000000000000500000002000000070000000200000002000000"
        "03000000090000000300000002000000030000000401000374c3a90000000100000005000000020000000700"
        "0000020000000200000003000000090000000300000002000000030000000400000000010000000200016800"
        "002384"
    ),
    ("LeaderAndIsrResponse", 1): "000000000001000374c3a900000001000b",
    ("LeaderAndIsrRequest", 2): (
        "0000000100000006000000010000000200000001000374c3a900000002000000000000000500000002000000"
        "0700000002000000020000000300000009000000030000000200000003000000040100000001000000050000"
        "0002000000070000000200000002000000030000000900000003000000020000000300000004000000000100"
        "00000200016800002384"
    ),
    ("LeaderAndIsrResponse", 2): "000000000001000374c3a900000001000b",
    ("UpdateMetadataRequest", 0): (
        "000000010000000600000002000374c3a90000000000000005fffffffe000000070000000100000002000000"
        "09000000020000000200000003000374c3a90000000100000005fffffffe0000000700000001000000020000"
        "0009000000020000000200000003000000010000000200016800002384"
    ),
    ("UpdateMetadataResponse", 0): "000b",
    ("UpdateMetadataRequest", 1): (
        "000000010000000600000002000374c3a90000000000000005fffffffe000000070000000100000002000000"
        "09000000020000000200000003000374c3a90000000100000005fffffffe0000000700000001000000020000"
        "0009000000020000000200000003000000010000000200000001000023840001680000"
    ),
    ("UpdateMetadataResponse", 1): "000b",
    ("UpdateMetadataRequest", 2): (
        "000000010000000600000002000374c3a90000000000000005fffffffe000000070000000100000002000000"
        "09000000020000000200000003000374c3a90000000100000005fffffffe0000000700000001000000020000"
        "0009000000020000000200000003000000010000000200000001000023840001680000000172"
    ),
    ("UpdateMetadataResponse", 2): "000b",
    ("UpdateMetadataRequest", 3): (
        "000000010000000600000002000374c3a90000000000000005fffffffe000000070000000100000002000000"
        "09000000020000000200000003000374c3a90000000100000005fffffffe0000000700000001000000020000"
        "0009000000020000000200000003000000010000000200000001000023840001680009504c41494e54455854"
        "0000ffff"
    ),
    ("UpdateMetadataResponse", 3): "000b",
    ("UpdateMetadataRequest", 4): (
        "000000010000000600000002000374c3a90000000000000005fffffffe000000070000000100000002000000"
        "090000000200000002000000030000000100000003000374c3a90000000100000005fffffffe000000070000"
        "0001000000020000000900000002000000020000000300000001000000030000000100000002000000010000"
        "23840001680009504c41494e544558540000000172"
    ),
    ("UpdateMetadataResponse", 4): "000b",
    ("UpdateMetadataRequest", 5): (
        "0000000100000006000000010000000200000001000374c3a9000000020000000000000005fffffffe000000"
        "0700000001000000020000000900000002000000020000000300000001000000030000000100000005ffffff"
        "fe00000007000000010000000200000009000000020000000200000003000000010000000300000001000000"
        "0200000001000023840001680009504c41494e544558540000ffff"
    ),
    ("UpdateMetadataResponse", 5): "000b",
    ("StopReplicaRequest", 0): "00000001000000060100000002000374c3a900000000000374c3a900000003",
    ("StopReplicaResponse", 0): "000000000001000374c3a9000000030038",
    ("StopReplicaRequest", 1): (
        "000000010000000600000001000000020100000001000374c3a9000000020000000000000003"
    ),
    ("StopReplicaResponse", 1): "000000000001000374c3a9000000030038",
}
TOPIC = "té"


def leader_and_isr_request(version: int) -> LeaderAndIsrRequest:
    states = [
        LeaderAndIsrRequestPartitionState(
            topic_name=TOPIC if version < 2 else "",
            partition_index=index,
            controller_epoch=5,
            leader=2,
            leader_epoch=7,
            isr=(2, 3),
            partition_epoch=9,
            replicas=(2, 3, 4),
            is_new=version >= 1 and index == 0,
        )
        for index in (0, 1)
    ]
    grouped = LeaderAndIsrRequestTopicState(topic_name=TOPIC, partition_states=tuple(states))
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=6,
        broker_epoch=0x1_0000_0002 if version >= 2 else -1,
        ungrouped_partition_states=tuple(states) if version < 2 else (),
        topic_states=(grouped,) if version >= 2 else (),
        live_leaders=(LeaderAndIsrRequestLiveLeader(broker_id=2, host_name="h", port=9092),),
    )


def leader_and_isr_response(version: int) -> LeaderAndIsrResponse:
    error = LeaderAndIsrResponsePartitionError(topic_name=TOPIC, partition_index=1, error_code=11)
    return LeaderAndIsrResponse(error_code=0, partition_errors=(error,))


def update_metadata_request(version: int) -> UpdateMetadataRequest:
    states = [
        UpdateMetadataRequestPartitionState(
            topic_name=TOPIC if version < 5 else "",
            partition_index=index,
            controller_epoch=5,
            leader=-2,
            leader_epoch=7,
            isr=(2,),
            zk_version=9,
            replicas=(2, 3),
            offline_replicas=(3,) if version >= 4 else (),
        )
        for index in (0, 1)
    ]
    endpoint = UpdateMetadataRequestEndpoint(
        port=9092, host="h", listener="PLAINTEXT" if version >= 3 else "", security_protocol=0
    )
    broker = UpdateMetadataRequestLiveBroker(
        id=2,
        v0_host="h" if version == 0 else "",
        v0_port=9092 if version == 0 else 0,
        endpoints=(endpoint,) if version >= 1 else (),
        rack="r" if version in (2, 4) else None,
    )
    grouped = UpdateMetadataRequestTopicState(topic_name=TOPIC, partition_states=tuple(states))
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=6,
        broker_epoch=0x1_0000_0002 if version >= 5 else -1,
        ungrouped_partition_states=tuple(states) if version < 5 else (),
        topic_states=(grouped,) if version >= 5 else (),
        live_brokers=(broker,),
    )


def update_metadata_response(version: int) -> UpdateMetadataResponse:
    return UpdateMetadataResponse(error_code=11)


def stop_replica_request(version: int) -> StopReplicaRequest:
    flat = [
        StopReplicaRequestUngroupedPartition(topic_name=TOPIC, partition_index=index)
        for index in (0, 3)
    ]
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=6,
        broker_epoch=0x1_0000_0002 if version >= 1 else -1,
        delete_partitions=True,
        ungrouped_partitions=tuple(flat) if version == 0 else (),
        topics=(StopReplicaRequestTopic(name=TOPIC, partition_indexes=(0, 3)),)
        if version >= 1
        else (),
    )


def stop_replica_response(version: int) -> StopReplicaResponse:
    error = StopReplicaResponsePartitionError(topic_name=TOPIC, partition_index=3, error_code=56)
    return StopReplicaResponse(error_code=0, partition_errors=(error,))


MADE = {
    "LeaderAndIsrRequest": leader_and_isr_request,
    "LeaderAndIsrResponse": leader_and_isr_response,
    "UpdateMetadataRequest": update_metadata_request,
    "UpdateMetadataResponse": update_metadata_response,
    "StopReplicaRequest": stop_replica_request,
    "StopReplicaResponse": stop_replica_response,
}


@pytest.mark.parametrize(("name", "version"), BY_KAFKA)
def test_a_control_message_is_written_byte_for_byte_as_kafka_writes_it(
    name: str, version: int
) -> None:
    assert encode(MADE[name](version), version).hex() == BY_KAFKA[name, version]


@pytest.mark.parametrize(("name", "version"), BY_KAFKA)
def test_a_control_message_of_kafka_is_read_whole(name: str, version: int) -> None:
    expected = MADE[name](version)
    data = bytes.fromhex(BY_KAFKA[name, version])
    assert decode(type(expected), version, data) == (expected, len(data))
