"""UpdateMetadata: taken from the newest controller, and waiting requests are woken."""

from __future__ import annotations

from collections.abc import Hashable

import attrs

from broker.handlers import update_metadata
from broker.replication.control_gate import ControlGate
from protocol.errors import ErrorCode
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.special_values import LEADER_DURING_DELETE
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, context
from tests.broker.replication.replicas import update_metadata as request


@attrs.define(eq=False)
class UpdateMetadataStage:
    """The handler and all it is given; what it told to others is kept."""

    replicas: Replicas = attrs.field(factory=Replicas)
    gate: ControlGate = attrs.field(factory=ControlGate)
    touched: list[Hashable] = attrs.field(factory=list)
    deleted: list[TopicPartition] = attrs.field(factory=list)

    def send(self, update: UpdateMetadataRequest) -> ErrorCode:
        response = update_metadata.handle(
            self.replicas.cache,
            self.gate,
            self.touched.append,
            self.deleted.extend,
            update,
            context(5),
        )
        return ErrorCode.of(response.error_code)


def test_who_waits_for_a_topic_is_woken_once() -> None:
    stage = UpdateMetadataStage()
    assert stage.send(request("t", 3)) == ErrorCode.NONE
    assert stage.touched == [("topic", "t")]
    assert stage.replicas.cache.partition_count("t") == 3


def test_a_request_without_partitions_brings_the_live_brokers() -> None:
    stage = UpdateMetadataStage()
    assert stage.send(request(live={4: 9092})) == ErrorCode.NONE
    assert sorted(stage.replicas.cache.brokers) == [4]
    assert stage.touched == []


def test_deleted_partitions_are_handed_on_and_their_topic_woken() -> None:
    stage = UpdateMetadataStage()
    stage.send(request("t", 2, leader=LEADER_DURING_DELETE))
    assert stage.deleted == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert stage.touched == [("topic", "t")]


def test_a_controller_of_the_past_changes_nothing() -> None:
    stage = UpdateMetadataStage()
    stage.send(request("t", controller_epoch=5))
    assert stage.send(request("u", controller_epoch=4)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert stage.replicas.cache.topics() == ["t"]
