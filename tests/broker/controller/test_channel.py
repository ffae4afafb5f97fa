"""The queue of requests to one broker: order, repetition, versions, and the events that follow."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.controller.channel import Channel
from broker.controller.effects import SendLeaderAndIsr, SendStopReplica, SendUpdateMetadata
from broker.controller.events import (
    Event,
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
)
from broker.controller.requests import ControlEffect, ControllerIdentity
from broker.controller.state import RegisteredBroker
from clients.transport.connection import ConnectionFailed, RequestTimedOut, UnsupportedApi
from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr import (
    LeaderAndIsrResponse,
    LeaderAndIsrResponsePartitionError,
)
from protocol.messages.stop_replica import (
    StopReplicaResponse,
    StopReplicaResponsePartitionError,
)
from protocol.messages.update_metadata import UpdateMetadataResponse
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from zk.znodes import Endpoint

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SENDER = ControllerIdentity(1, 5, "INTERNAL", "CONTROL")
BROKER = RegisteredBroker(
    2, 77, (Endpoint("INTERNAL", "inside", 9093), Endpoint("CONTROL", "host", 9094))
)
METADATA = SendUpdateMetadata((2,), (), (BROKER,))
STOP = SendStopReplica(2, (P0, P1))
TAKEN = UpdateMetadataResponse(error_code=0)


@attrs.define(eq=False)
class Peer:
    """A broker that responds with `script`, in order; an exception ends its connection."""

    script: list[Any]
    highest: int = 99
    calls: list[tuple[Any, int]] = attrs.Factory(list)
    connected_to: list[tuple[str, int]] = attrs.Factory(list)
    closed: bool = False

    async def connect(self, host: str, port: int) -> "Peer":
        self.connected_to.append((host, port))
        self.closed = False
        return self

    def version_of(self, api_key: ApiKey) -> int:
        if self.highest < 0:
            raise UnsupportedApi("nothing in common")
        return self.highest

    async def call(self, request: Any, *, version: int) -> Any:
        self.calls.append((request, version))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            self.closed = True
            raise answer
        return answer

    def abort(self, reason: str) -> None:
        self.closed = True


def exchange(peer: Peer, *sends: ControlEffect) -> list[Event]:
    """Send all, wait until nothing moves, close; return the events."""
    events: list[Event] = []

    async def run() -> None:
        channel = Channel(BROKER, SENDER, peer.connect, events.append)
        for send in sends:
            channel.send(send)
        await asyncio.sleep(60)
        channel.close()
        await asyncio.sleep(0)

    in_virtual_time(run)
    return events


def in_virtual_time(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(run())


def test_request_names_the_controller_and_the_registration_it_is_for() -> None:
    peer = Peer([TAKEN])
    exchange(peer, METADATA)
    ((request, version),) = peer.calls
    assert peer.connected_to == [("host", 9094)]
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 5, 77)
    assert version == 5


def test_older_broker_gets_its_own_version() -> None:
    peer = Peer([TAKEN], highest=4)
    exchange(peer, METADATA)
    assert peer.calls[0][1] == 4


def test_same_request_is_sent_again_until_it_is_answered_and_the_next_waits() -> None:
    lost = ConnectionFailed("host", 9094, "lost")
    late = RequestTimedOut("host", 9094, "late")
    peer = Peer([lost, late, TAKEN, StopReplicaResponse(error_code=0, partition_errors=())])
    exchange(peer, METADATA, STOP)
    kinds = [type(request).__name__ for request, _ in peer.calls]
    assert kinds == ["UpdateMetadataRequest"] * 3 + ["StopReplicaRequest"]
    assert len(peer.connected_to) == 3


def test_deleted_and_failed_replicas_are_told_apart() -> None:
    failed = StopReplicaResponsePartitionError(
        topic_name="t", partition_index=1, error_code=ErrorCode.KAFKA_STORAGE_ERROR
    )
    fine = StopReplicaResponsePartitionError(topic_name="t", partition_index=0, error_code=0)
    peer = Peer([StopReplicaResponse(error_code=0, partition_errors=[fine, failed])])
    assert exchange(peer, STOP) == [StopReplicaResponseReceived(2, (P0,), (P1,), broker_epoch=77)]


def test_refused_request_has_deleted_nothing() -> None:
    refused = StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, partition_errors=())
    assert exchange(Peer([refused]), STOP) == [
        StopReplicaResponseReceived(2, (), (P0, P1), broker_epoch=77)
    ]


def test_broker_without_a_common_version_fails_the_request_and_not_the_channel() -> None:
    peer = Peer([], highest=-1)
    assert (
        exchange(peer, STOP, STOP)
        == [StopReplicaResponseReceived(2, (), (P0, P1), broker_epoch=77)] * 2
    )


def test_channel_that_moves_sends_all_that_it_has_to_the_new_address() -> None:
    lost = ConnectionFailed("host", 9094, "lost")
    peer = Peer([lost, TAKEN, StopReplicaResponse(error_code=0, partition_errors=())])
    moved = attrs.evolve(BROKER, endpoints=(Endpoint("CONTROL", "other", 9095),))

    async def run() -> None:
        channel = Channel(BROKER, SENDER, peer.connect, lambda event: None)
        channel.send(METADATA)
        channel.send(STOP)
        await asyncio.sleep(0.01)
        channel.move(moved)
        await asyncio.sleep(60)
        channel.close()

    in_virtual_time(run)
    kinds = [type(request).__name__ for request, _ in peer.calls]
    assert kinds == ["UpdateMetadataRequest"] * 2 + ["StopReplicaRequest"]
    assert peer.connected_to == [("host", 9094), ("other", 9095)]


def test_closed_channel_drops_what_it_has_and_its_connection() -> None:
    peer = Peer([TAKEN])
    exchange(peer, METADATA)
    assert peer.closed

    async def run() -> None:
        channel = Channel(BROKER, SENDER, peer.connect, lambda event: None)
        channel.send(METADATA)
        channel.close()
        await asyncio.sleep(60)

    in_virtual_time(run)
    assert len(peer.calls) == 1


def led_answer(*codes: int) -> LeaderAndIsrResponse:
    return LeaderAndIsrResponse(
        error_code=0,
        partition_errors=[
            LeaderAndIsrResponsePartitionError(
                topic_name="t", partition_index=index, error_code=code
            )
            for index, code in enumerate(codes)
        ],
    )


def test_broker_says_which_replicas_it_has_a_disk_for() -> None:
    lead = SendLeaderAndIsr(2, (), (BROKER,))
    stale, broken = ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR
    peer = Peer([led_answer(0, broken), led_answer(stale)])
    assert exchange(peer, lead, lead) == [
        LeaderAndIsrResponseReceived(2, taken=(P0,), failed=(P1,), broker_epoch=77),
        LeaderAndIsrResponseReceived(
            2, taken=(P0,), broker_epoch=77
        ),  # what it has heard before, it has
    ]


def test_replicas_that_were_only_stopped_are_no_event() -> None:
    peer = Peer([StopReplicaResponse(error_code=0, partition_errors=())])
    assert exchange(peer, SendStopReplica(2, (P0,), delete=False)) == []
