"""The blocking twin of a small asyncio class, and of a real client."""

import asyncio
import concurrent.futures
import threading
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest

from clients.blocking import Producer, twin
from protocol.settings import SettingError


class Counter:
    """What a client can have: calls, futures, streams, state, class methods."""

    def __init__(self, first: int = 0) -> None:
        if first < 0:
            raise ValueError("negative")
        self.count = first
        self.closed = False
        self.loop = asyncio.get_running_loop()

    @classmethod
    async def starting_at(cls, first: int) -> "Counter":
        await asyncio.sleep(0)
        return cls(first)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.closed = True

    async def add(self, n: int) -> int:
        await asyncio.sleep(0)
        if n < 0:
            raise ValueError(f"negative {n}")
        self.count += n
        return self.count

    async def later(self, n: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self.loop.create_future()
        self.loop.call_soon(future.set_result, n)
        return future

    async def refused(self) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self.loop.create_future()
        self.loop.call_soon(future.set_exception, ValueError("no"))
        return future

    async def streams(self) -> dict[str, list[AsyncIterator[int]]]:
        async def numbers() -> AsyncIterator[int]:
            for n in range(3):
                await asyncio.sleep(0)
                yield n

        return {"t": [numbers(), numbers()]}

    def now(self) -> threading.Thread:
        return threading.current_thread()


BlockingCounter = twin(Counter)


@pytest.fixture
def counter() -> Any:
    with BlockingCounter(5) as made:
        yield made


def test_call_blocks_and_returns_or_raises_as_the_original(counter: Any) -> None:
    assert counter.add(2) == 7
    with pytest.raises(ValueError, match="negative -1"):
        counter.add(-1)
    assert counter.count == 7


def test_plain_method_runs_on_the_loops_thread(counter: Any) -> None:
    assert counter.now() is not threading.current_thread()


def test_asyncio_future_becomes_a_concurrent_one(counter: Any) -> None:
    future = counter.later(9)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=5) == 9
    with pytest.raises(ValueError, match="no"):
        counter.refused().result(timeout=5)


def test_streams_inside_a_result_become_iterators(counter: Any) -> None:
    first, second = counter.streams()["t"]
    assert list(first) == [0, 1, 2]
    assert next(second) == 0


def test_class_method_makes_a_twin() -> None:
    with BlockingCounter.starting_at(3) as made:
        assert made.add(1) == 4


def test_closing_closes_the_original_and_ends_the_thread() -> None:
    before = {*threading.enumerate()}
    made = BlockingCounter()
    original = made._original
    made.close()
    assert original.closed
    assert {*threading.enumerate()} <= before


def test_constructor_that_raises_leaves_no_thread() -> None:
    before = {*threading.enumerate()}
    with pytest.raises(ValueError, match="negative"):
        BlockingCounter(-1)
    with pytest.raises(SettingError):
        Producer({"bootstrap.servers": "nowhere"})
    assert {*threading.enumerate()} <= before


def test_many_threads_share_a_twin(counter: Any) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(counter.add, [1] * 100))
    assert counter.count == 105
