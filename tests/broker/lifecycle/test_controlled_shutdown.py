"""Controlled shutdown: the requests to the controller, and when a broker stops without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from broker.lifecycle.controlled_shutdown import ControlledShutdown, ShutdownConfig
from clients.errors import ConnectionFailed
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlledShutdownResponseRemainingPartition,
)
from tests.broker.small_cluster import in_virtual_time
from zk.memory import MemorySession, MemoryZooKeeper
from zk.znodes import BrokerId, Controller, Endpoint

REMAINING = ControlledShutdownResponseRemainingPartition(topic_name="t", partition_index=0)
REFUSED = ConnectionFailed("controller", 1, "refused")


def reply(*remaining: Any, error: ErrorCode = ErrorCode.NONE) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=error, remaining_partitions=remaining)


@attrs.define(eq=False)
class StoppingBroker:
    """Broker 1, registered at epoch 77; broker 2 is the controller and responds with `script`."""

    script: list[Any]
    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    requests: list[tuple[str, int, Any]] = attrs.field(factory=list)
    times: list[float] = attrs.field(factory=list)
    closed: int = 0
    called: tuple[str, int] = ("", 0)
    session: MemorySession = attrs.field(init=False)

    async def register(self, *ids: int, controller: int = 2) -> None:
        self.session = self.zookeeper.session()
        await self.session.start()
        await self.session.ensure_path("/brokers/ids")
        for broker_id in ids:
            endpoints = (
                Endpoint("OUTSIDE", "public", 1),
                Endpoint("INSIDE", f"host{broker_id}", 9000 + broker_id),
            )
            node = BrokerId(endpoints=endpoints, timestamp_ms=0)
            await self.session.create(BrokerId.path(broker_id), node.encode())
        await self.session.create(Controller.path(), Controller(controller, 0).encode())

    def controlled_shutdown(self, **config: Any) -> ControlledShutdown:
        connect: Any = self.connect
        return ControlledShutdown(
            self.session, 1, lambda: 77, "INSIDE", connect, ShutdownConfig(**config)
        )

    async def connect(self, host: str, port: int) -> StoppingBroker:
        self.called = host, port
        return self

    async def call(self, request: Any) -> Any:
        self.requests.append((*self.called, request))
        self.times.append(asyncio.get_running_loop().time())
        response = self.script.pop(0)
        if isinstance(response, Exception):
            raise response
        return response

    def abort(self, reason: str) -> None:
        self.closed += 1


def shut_down(
    script: list[Any], story: Callable[[StoppingBroker], Awaitable[None]], *ids: int
) -> StoppingBroker:
    broker = StoppingBroker(script)

    async def run() -> None:
        await broker.register(*(ids or (1, 2)))
        await story(broker)

    in_virtual_time(run)
    return broker


async def prepare(broker: StoppingBroker) -> None:
    await broker.controlled_shutdown().prepare()


def test_the_controller_is_asked_where_brokers_call_it_and_the_connection_closed() -> None:
    broker = shut_down([reply()], prepare)
    assert broker.requests == [
        ("host2", 9002, ControlledShutdownRequest(broker_id=1, broker_epoch=77))
    ]
    assert broker.closed == 1


def test_while_something_is_left_it_asks_again_after_a_pause() -> None:
    broker = shut_down([reply(REMAINING), REFUSED, reply()], prepare)
    assert [round(time_s) for time_s in broker.times] == [0, 5, 10]
    assert broker.closed == 3


def test_an_error_is_no_permission_to_go() -> None:
    assert len(shut_down([reply(error=ErrorCode.NOT_CONTROLLER), reply()], prepare).requests) == 2


def test_after_so_many_retries_it_goes_without() -> None:
    broker = shut_down([reply(REMAINING)] * 9, prepare)
    assert len(broker.requests) == 4

    async def hurried(broker: StoppingBroker) -> None:
        await broker.controlled_shutdown(max_retries=0).prepare()

    assert len(shut_down([reply(REMAINING)] * 9, hurried).requests) == 1


def test_the_last_broker_does_not_wait_for_anybody() -> None:
    assert shut_down([], prepare, 1).requests == []


def test_when_all_others_go_meanwhile_it_goes_too() -> None:
    async def story(broker: StoppingBroker) -> None:
        stopping = asyncio.ensure_future(prepare(broker))
        await asyncio.sleep(1)
        await broker.session.delete(BrokerId.path(2))
        await stopping
        assert asyncio.get_running_loop().time() < 1.5

    assert len(shut_down([reply(REMAINING)] * 9, story).requests) == 1


def test_a_controller_that_moves_is_found_where_it_is_then() -> None:
    async def story(broker: StoppingBroker) -> None:
        stopping = asyncio.ensure_future(prepare(broker))
        await asyncio.sleep(1)
        await broker.session.set(Controller.path(), Controller(3, 0).encode())
        await stopping

    broker = shut_down([reply(error=ErrorCode.NOT_CONTROLLER), reply()], story, 1, 2, 3)
    assert [host for host, _, _ in broker.requests] == ["host2", "host3"]


def test_without_a_controller_it_looks_for_one_and_goes() -> None:
    async def story(broker: StoppingBroker) -> None:
        await broker.session.delete(Controller.path())
        await prepare(broker)
        assert 14 < asyncio.get_running_loop().time() < 16

    assert shut_down([], story).requests == []


def test_switched_off_it_asks_nobody() -> None:
    async def story(broker: StoppingBroker) -> None:
        await broker.controlled_shutdown(enable=False).prepare()

    assert shut_down([], story).requests == []


def test_without_zookeeper_it_goes_at_once() -> None:
    async def story(broker: StoppingBroker) -> None:
        broker.zookeeper.suspend(broker.session)
        await prepare(broker)
        assert asyncio.get_running_loop().time() < 0.1

    assert shut_down([], story).requests == []
