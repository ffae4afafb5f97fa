"""The three handlers of control requests obey and refuse alike."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from broker.handlers import leader_and_isr as leader_and_isr_handler
from broker.handlers import stop_replica as stop_replica_handler
from broker.handlers import update_metadata as update_metadata_handler
from broker.network.request_context import RequestContext
from broker.replication.control_gate import ControlGate
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import LeaderAndIsrRequest
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaRequestTopic
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, context, leader_and_isr, update_metadata

T0 = TopicPartition("t", 0)
PAST, PRESENT = 4, 5
BEFORE_BOUNCE, NOW = 70, 77

Make = Callable[[int, int], Any]


@attrs.define(eq=False)
class KnownConfigs:
    """Topic settings that are all known."""

    def when_known(self, topics: set[str], answer: Callable[[], Any], timeout_ms: int) -> Any:
        return answer()


@attrs.define(eq=False)
class Broker:
    """Broker 0, registered at epoch 77: its gate and the handlers behind it."""

    gate: ControlGate = attrs.field(factory=lambda: ControlGate(lambda: NOW))
    replicas: Replicas = attrs.field(factory=Replicas)

    def send(self, request: Any, context: RequestContext = context()) -> ErrorCode:  # noqa: B008
        return asyncio.run(self._sent(request, context))

    async def _sent(self, request: Any, context: RequestContext) -> ErrorCode:
        answer: Any
        replicas = self.replicas
        control = replicas.control()
        if isinstance(request, LeaderAndIsrRequest):
            configs: Any = KnownConfigs()
            answer = leader_and_isr_handler.handle(
                self.gate, replicas.manager, configs, control, request, context
            )
        elif isinstance(request, StopReplicaRequest):
            answer = stop_replica_handler.handle(self.gate, control, request, context)
        else:
            answer = update_metadata_handler.handle(
                self.replicas.cache, self.gate, lambda key: None, lambda tps: None, request, context
            )
        return ErrorCode.of((await replicas.ended(answer)).error_code)


def lead(controller_epoch: int, broker_epoch: int) -> LeaderAndIsrRequest:
    request = leader_and_isr("t", controller_epoch=controller_epoch)
    return attrs.evolve(request, broker_epoch=broker_epoch)


def know(controller_epoch: int, broker_epoch: int) -> UpdateMetadataRequest:
    request = update_metadata("t", controller_epoch=controller_epoch)
    return attrs.evolve(request, broker_epoch=broker_epoch)


def stop(controller_epoch: int, broker_epoch: int) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=0,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        delete_partitions=True,
        topics=[StopReplicaRequestTopic(name="t", partition_indexes=[0])],
    )


KINDS = pytest.mark.parametrize("make", [lead, know, stop])
OTHER_KINDS = pytest.mark.parametrize("earlier", [lead, know, stop])


@KINDS
@pytest.mark.parametrize("broker_epoch", [-1, NOW, NOW + 1])
def test_the_present_controller_is_obeyed(make: Make, broker_epoch: int) -> None:
    """A later broker epoch belongs to a registration that we are about to see; -1 is none."""
    assert Broker().send(make(PRESENT, broker_epoch)) == ErrorCode.NONE


@OTHER_KINDS
@KINDS
def test_a_controller_that_any_request_has_deposed_is_refused(make: Make, earlier: Make) -> None:
    broker = Broker()
    broker.send(earlier(PRESENT, NOW))
    partitions, topics = dict(broker.replicas.manager.partitions), broker.replicas.cache.topics()
    assert broker.send(make(PAST, NOW)) == ErrorCode.STALE_CONTROLLER_EPOCH
    assert broker.replicas.manager.partitions == partitions
    assert broker.replicas.cache.topics() == topics


@KINDS
def test_what_was_meant_for_the_broker_before_it_bounced_is_refused(make: Make) -> None:
    broker = Broker()
    assert broker.send(make(PRESENT, BEFORE_BOUNCE)) == ErrorCode.STALE_BROKER_EPOCH
    assert broker.replicas.manager.partitions == {}


@KINDS
def test_a_refused_request_deposes_nobody(make: Make) -> None:
    broker = Broker()
    broker.send(make(PRESENT, BEFORE_BOUNCE))
    assert broker.send(make(PAST, NOW)) == ErrorCode.NONE


@OTHER_KINDS
@KINDS
def test_what_a_controller_gave_up_on_an_earlier_connection_is_refused(
    make: Make, earlier: Make
) -> None:
    broker = Broker()
    broker.send(earlier(PRESENT, NOW), context()._replace(connection=8))
    late = context()._replace(connection=7)
    assert broker.send(make(PRESENT, NOW), late) == ErrorCode.STALE_CONTROLLER_EPOCH


@KINDS
def test_another_client_on_an_earlier_connection_is_heard(make: Make) -> None:
    broker = Broker()
    broker.send(know(PRESENT, NOW), context()._replace(connection=8))
    other = context(client_id="another controller")._replace(connection=7)
    assert broker.send(make(PRESENT, NOW), other) == ErrorCode.NONE
