"""The controller's requests in every version that a receiver may speak, through the wire."""

import pytest

from broker.controller.effects import (
    LeaderAndIsrPartition,
    PartitionMetadata,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from broker.controller.requests import (
    ControlEffect,
    ControllerIdentity,
    ControlRequest,
    render_request,
)
from broker.controller.state import Leadership, RegisteredBroker
from protocol.encoding import decode, encode
from protocol.messages import leader_and_isr, stop_replica, update_metadata
from protocol.topic_partition import TopicPartition
from zk.znodes import Endpoint, PartitionState

SENDER = ControllerIdentity(
    controller_id=1,
    controller_epoch=9,
    inter_broker_listener="INTERNAL",
    controller_listener="CONTROL",
)
P0, P1, Q0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
LEADERSHIP = Leadership(PartitionState(2, 4, (2, 1), 8), zk_version=6)
BROKER = RegisteredBroker(
    2,
    77,
    (
        Endpoint("EXTERNAL", "out", 9093, "SASL_SSL"),
        Endpoint("INTERNAL", "in", 9092, "PLAINTEXT"),
    ),
    rack="r",
)


def through_the_wire(send: ControlEffect, version: int) -> ControlRequest:
    """Return the request as the receiver decodes it."""
    request = render_request(send, SENDER, 77, version)
    read: ControlRequest = decode(type(request), version, encode(request, version))[0]
    return read


@pytest.mark.parametrize("version", [0, 1, 2])
def test_leader_and_isr(version: int) -> None:
    partitions = tuple(
        LeaderAndIsrPartition(partition, LEADERSHIP, (1, 2), True) for partition in (P0, Q0, P1)
    )
    request = through_the_wire(SendLeaderAndIsr(2, partitions, (BROKER,)), version)
    assert isinstance(request, leader_and_isr.LeaderAndIsrRequest)
    states = leader_and_isr.partition_states(request)
    assert {(topic, state.partition_index) for topic, state in states} == {P0, P1, Q0}
    for _, state in states:
        assert (state.leader, state.leader_epoch, state.controller_epoch) == (2, 4, 8)
        assert (state.isr, state.replicas, state.partition_epoch) == ((2, 1), (1, 2), 6)
        assert state.is_new is (version >= 1)
    (leader,) = request.live_leaders
    assert (leader.broker_id, leader.host_name, leader.port) == (2, "in", 9092)
    assert (request.controller_id, request.controller_epoch) == (1, 9)
    assert request.broker_epoch == (77 if version >= 2 else -1)


@pytest.mark.parametrize("version", range(6))
def test_update_metadata(version: int) -> None:
    known = PartitionMetadata(P0, LEADERSHIP, (1, 2), (1,))
    deleted = PartitionMetadata(Q0, LEADERSHIP, (1, 2), is_being_deleted=True)
    request = through_the_wire(SendUpdateMetadata((2,), (known, deleted), (BROKER,)), version)
    assert isinstance(request, update_metadata.UpdateMetadataRequest)
    (topic, state), (_, gone) = update_metadata.partition_states(request)
    assert (topic, state.partition_index, state.leader, state.zk_version) == ("t", 0, 2, 6)
    assert state.offline_replicas == ((1,) if version >= 4 else ())
    assert gone.leader == -2
    (broker,) = request.live_brokers
    if version == 0:
        assert (broker.v0_host, broker.v0_port) == ("in", 9092)
    else:
        assert [(e.host, e.port, e.security_protocol) for e in broker.endpoints] == [
            ("out", 9093, 3),
            ("in", 9092, 0),
        ]
    assert broker.rack == ("r" if version >= 2 else None)


@pytest.mark.parametrize("version", [0, 1])
def test_stop_replica(version: int) -> None:
    request = through_the_wire(SendStopReplica(2, (P1, Q0, P0)), version)
    assert isinstance(request, stop_replica.StopReplicaRequest)
    assert request.delete_partitions
    assert set(stop_replica.partitions(request)) == {P0, P1, Q0}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("delete", [True, False])
def test_stopped_replicas_are_deleted_only_if_that_is_meant(version: int, delete: bool) -> None:
    request = through_the_wire(SendStopReplica(2, (P0, Q0), delete), version)
    assert isinstance(request, stop_replica.StopReplicaRequest)
    assert request.delete_partitions is delete
    assert stop_replica.partitions(request) == [P0, Q0]
