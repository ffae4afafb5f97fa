"""The choice of brokers to ask, and brokers that stay silent; in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
import pytest

from clients.cluster_view import BrokerEndpoint
from clients.config import ClusterConfig
from clients.errors import (
    ConnectionFailed,
    ConnectionRefused,
    NoBrokersAvailable,
    NoSuchAddress,
    RequestTimedOut,
)
from clients.transport.connections import PATIENCE_S, Connections
from tests.stage.clock import run_in_virtual_time

BROKERS = [BrokerEndpoint(n, "h", n) for n in (1, 2, 3)]


@attrs.define(eq=False)
class Line:
    """A connection as far as `Connections` uses it."""

    port: int
    closed: bool = False
    in_flight: int = 0

    async def close(self) -> None:
        self.closed = True


class Scene:
    """Brokers by port, which do all that is asked unless a test changes them."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.asked: list[int] = []
        self.unreachable: set[int] = set()
        self.failure = ConnectionFailed
        self.silent: set[int] = set()
        config = ClusterConfig(reconnect_backoff_ms=50, reconnect_backoff_max_ms=1000)
        self.connections = Connections(config, "me", self.connect)

    async def connect(self, host: str, port: int, **settings: Any) -> Any:
        self.opened.append(port)
        if port in self.unreachable:
            raise self.failure(host, port, "refused")
        return Line(port)

    async def ask(self, line: Any) -> int:
        self.asked.append(line.port)
        if line.port in self.silent:
            line.in_flight += 1
            await asyncio.Event().wait()
        port: int = line.port
        return port

    async def first_answer(self) -> int:
        return await self.connections.first_answer(BROKERS, self.ask)


def play(scene: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        await scene(Scene())

    run_in_virtual_time(whole())


def test_one_broker_is_asked_and_the_next_time_again() -> None:
    async def scene(work: Scene) -> None:
        answers = [await work.first_answer() for _ in range(10)]
        assert len(set(answers)) == 1
        assert work.asked == answers
        assert len(work.opened) == 1

    play(scene)


def test_the_next_is_asked_at_once_when_one_fails() -> None:
    async def scene(work: Scene) -> None:
        work.unreachable = {1, 2}
        assert await work.first_answer() == 3
        assert asyncio.get_running_loop().time() == 0

    play(scene)


def test_one_that_keeps_silent_is_not_waited_for_alone_and_asked_last_from_then_on() -> None:
    async def scene(work: Scene) -> None:
        await work.connections.to(BROKERS[0])  # open, so it is asked first
        work.silent = {1}
        answer = await work.first_answer()
        assert answer in (2, 3)
        assert asyncio.get_running_loop().time() == PATIENCE_S
        assert [await work.first_answer() for _ in range(5)] == [answer] * 5
        assert work.asked.count(1) == 1

    play(scene)


def test_one_that_is_never_connected_to_is_not_waited_for_alone_either() -> None:
    async def scene(work: Scene) -> None:
        async def connect(host: str, port: int, **settings: Any) -> Any:
            return await (asyncio.Event().wait() if port != 3 else work.connect(host, port))

        connections = Connections(ClusterConfig(), "me", connect)
        for attempt in range(5):
            assert await connections.first_answer(BROKERS, work.ask) == 3
            if attempt == 0:
                first_s = asyncio.get_running_loop().time()
        assert first_s <= 2 * PATIENCE_S
        assert asyncio.get_running_loop().time() == first_s

    play(scene)


def test_the_late_answer_of_one_asked_first_is_taken_if_the_second_says_nothing() -> None:
    async def scene(work: Scene) -> None:
        async def ask(line: Any) -> int:
            work.asked.append(line.port)
            await asyncio.sleep(2.5 * PATIENCE_S)
            return await work.ask(line)

        answer = await work.connections.first_answer(BROKERS, ask)
        assert answer == work.asked[0]
        assert asyncio.get_running_loop().time() == 2.5 * PATIENCE_S

    play(scene)


def test_a_broker_that_let_a_request_of_another_purpose_time_out_is_asked_last() -> None:
    async def scene(work: Scene) -> None:
        await work.connections.to(BROKERS[0])
        produce: Any = await work.connections.to(BROKERS[0], "produce")
        produce.closed = True
        assert await work.first_answer() != 1

    play(scene)


def test_who_doubts_an_answer_is_led_round_all_brokers() -> None:
    async def scene(work: Scene) -> None:
        answers = []
        for _ in range(6):
            answers.append(await work.first_answer())
            work.connections.doubt()
        assert sorted(answers[:3]) == sorted(answers[3:]) == [1, 2, 3]

    play(scene)


def test_what_each_said_is_named_when_none_answers() -> None:
    async def scene(work: Scene) -> None:
        work.unreachable = {1, 2}

        async def ask(line: Any) -> int:
            raise RequestTimedOut("h", line.port, "METADATA was not answered in time")

        with pytest.raises(NoBrokersAvailable) as failed:
            await work.connections.first_answer(BROKERS, ask)
        assert sorted(str(failed.value).split("; ")) == [
            "h:1: refused",
            "h:2: refused",
            "h:3: METADATA was not answered in time",
        ]

    play(scene)


@pytest.mark.parametrize(
    ("refusing", "unreachable"), [({1, 2, 3}, set()), ({1, 2}, {3})], ids=["all", "not all"]
)
def test_whether_nobody_listens_at_any_address_is_known(
    refusing: set[int], unreachable: set[int]
) -> None:
    async def scene(work: Scene) -> None:
        async def connect(host: str, port: int, **settings: Any) -> Any:
            failure = ConnectionRefused if port in refusing else ConnectionFailed
            raise failure(host, port, "not connected")

        connections = Connections(ClusterConfig(), "me", connect)
        # At once again it is known without another attempt.
        for _ in range(2):
            with pytest.raises(NoBrokersAvailable) as failed:
                await connections.first_answer(BROKERS, work.ask)
            assert failed.value.is_refused is (not unreachable)

    play(scene)


def test_a_broker_that_refuses_is_connected_to_ever_more_rarely_but_every_second_or_so() -> None:
    async def scene(work: Scene) -> None:
        work.unreachable = {1}
        for _ in range(1000):
            with pytest.raises(ConnectionFailed):
                await work.connections.to(BROKERS[0])
            await asyncio.sleep(0.01)
        assert 10 <= len(work.opened) <= 17  # in ten seconds

    play(scene)


def test_an_error_that_is_no_lost_connection_is_the_answer() -> None:
    async def scene(work: Scene) -> None:
        async def ask(line: Any) -> int:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await work.connections.first_answer(BROKERS, ask)

    play(scene)


@pytest.mark.parametrize(("failure", "lines"), [(NoSuchAddress, 2), (ConnectionFailed, 0)])
def test_a_broker_whose_address_is_none_is_named_once_until_it_was_reached(
    failure: type[ConnectionFailed], lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that is down is not logged: brokers come and go."""

    async def scene(work: Scene) -> None:
        work.failure = failure
        for _ in range(2):
            work.unreachable.add(1)
            for _ in range(3):
                with pytest.raises(ConnectionFailed):
                    await work.connections.to(BROKERS[0])
                await asyncio.sleep(5)
            work.unreachable.clear()
            connection = await work.connections.to(BROKERS[0])
            connection.closed = True  # type: ignore[misc]

    play(scene)
    assert len([message for message in caplog.messages if "h:1: refused" in message]) == lines


def test_closed_connections_are_not_opened_again() -> None:
    async def scene(work: Scene) -> None:
        await work.connections.close()
        with pytest.raises(ConnectionFailed, match="the client is closed"):
            await work.connections.to(BROKERS[0])
        assert work.opened == []

    play(scene)


def test_connection_that_opens_while_the_others_are_closed_is_closed_too() -> None:
    async def scene(work: Scene) -> None:
        line = Line(1)

        async def connect(host: str, port: int, **settings: Any) -> Any:
            await work.connections.close()
            return line

        work.connections = Connections(ClusterConfig(), "me", connect)
        with pytest.raises(ConnectionFailed, match="the client is closed"):
            await work.connections.to(BROKERS[0])
        assert line.closed

    play(scene)
