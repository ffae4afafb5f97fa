"""Leaving in good order: whom a broker asks, how often, and when it stops without."""

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

LEFT = ControlledShutdownResponseRemainingPartition(topic_name="t", partition_index=0)
REFUSED = ConnectionFailed("controller", 1, "refused")


def reply(*left: Any, error: ErrorCode = ErrorCode.NONE) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(error_code=error, remaining_partitions=left)


@attrs.define(eq=False)
class Leaving:
    """Broker 1, registered at epoch 77; broker 2 is the controller and answers by script."""

    answers: list[Any]
    zookeeper: MemoryZooKeeper = attrs.field(factory=MemoryZooKeeper)
    asked: list[tuple[str, int, Any]] = attrs.field(factory=list)
    at: list[float] = attrs.field(factory=list)
    closed: int = 0
    called: tuple[str, int] = ("", 0)
    session: MemorySession = attrs.field(init=False)

    async def register(self, *ids: int, controller: int = 2) -> None:
        self.session = self.zookeeper.session()
        await self.session.start()
        await self.session.ensure_path("/brokers/ids")
        for each in ids:
            endpoints = (
                Endpoint("OUTSIDE", "public", 1),
                Endpoint("INSIDE", f"host{each}", 9000 + each),
            )
            node = BrokerId(endpoints=endpoints, timestamp_ms=0)
            await self.session.create(BrokerId.path(each), node.encode())
        await self.session.create(Controller.path(), Controller(controller, 0).encode())

    def controlled_shutdown(self, **config: Any) -> ControlledShutdown:
        made: Any = self.connect
        return ControlledShutdown(
            self.session, 1, lambda: 77, "INSIDE", made, ShutdownConfig(**config)
        )

    async def connect(self, host: str, port: int) -> Leaving:
        self.called = host, port
        return self

    async def call(self, request: Any) -> Any:
        self.asked.append((*self.called, request))
        self.at.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def abort(self, reason: str) -> None:
        self.closed += 1


def leave(answers: list[Any], story: Callable[[Leaving], Awaitable[None]], *ids: int) -> Leaving:
    leaving = Leaving(answers)

    async def run() -> None:
        await leaving.register(*(ids or (1, 2)))
        await story(leaving)

    in_virtual_time(run)
    return leaving


async def prepare(leaving: Leaving) -> None:
    await leaving.controlled_shutdown().prepare()


def test_the_controller_is_asked_where_brokers_call_it_and_the_connection_closed() -> None:
    leaving = leave([reply()], prepare)
    assert leaving.asked == [
        ("host2", 9002, ControlledShutdownRequest(broker_id=1, broker_epoch=77))
    ]
    assert leaving.closed == 1


def test_while_something_is_left_it_asks_again_after_a_pause() -> None:
    leaving = leave([reply(LEFT), REFUSED, reply()], prepare)
    assert [round(at) for at in leaving.at] == [0, 5, 10]
    assert leaving.closed == 3


def test_an_error_is_no_permission_to_go() -> None:
    assert len(leave([reply(error=ErrorCode.NOT_CONTROLLER), reply()], prepare).asked) == 2


def test_after_so_many_retries_it_goes_without() -> None:
    leaving = leave([reply(LEFT)] * 9, prepare)
    assert len(leaving.asked) == 4

    async def hurried(leaving: Leaving) -> None:
        await leaving.controlled_shutdown(max_retries=0).prepare()

    assert len(leave([reply(LEFT)] * 9, hurried).asked) == 1


def test_the_last_broker_does_not_wait_for_anybody() -> None:
    assert leave([], prepare, 1).asked == []


def test_when_all_others_go_meanwhile_it_goes_too() -> None:
    async def story(leaving: Leaving) -> None:
        departing = asyncio.ensure_future(prepare(leaving))
        await asyncio.sleep(1)
        await leaving.session.delete(BrokerId.path(2))
        await departing
        assert asyncio.get_running_loop().time() < 1.5

    assert len(leave([reply(LEFT)] * 9, story).asked) == 1


def test_a_controller_that_moves_is_found_where_it_is_then() -> None:
    async def story(leaving: Leaving) -> None:
        departing = asyncio.ensure_future(prepare(leaving))
        await asyncio.sleep(1)
        await leaving.session.set(Controller.path(), Controller(3, 0).encode())
        await departing

    leaving = leave([reply(error=ErrorCode.NOT_CONTROLLER), reply()], story, 1, 2, 3)
    assert [host for host, _, _ in leaving.asked] == ["host2", "host3"]


def test_without_a_controller_it_looks_for_one_and_goes() -> None:
    async def story(leaving: Leaving) -> None:
        await leaving.session.delete(Controller.path())
        await prepare(leaving)
        assert 14 < asyncio.get_running_loop().time() < 16

    assert leave([], story).asked == []


def test_switched_off_it_asks_nobody() -> None:
    async def story(leaving: Leaving) -> None:
        await leaving.controlled_shutdown(enable=False).prepare()

    assert leave([], story).asked == []


def test_without_zookeeper_it_goes_at_once() -> None:
    async def story(leaving: Leaving) -> None:
        leaving.zookeeper.suspend(leaving.session)
        await prepare(leaving)
        assert asyncio.get_running_loop().time() < 0.1

    assert leave([], story).asked == []
