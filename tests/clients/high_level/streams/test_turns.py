"""How long a stream keeps the event loop."""

import asyncio
from collections.abc import Callable

import pytest

from clients.errors import ConsumerTimeout
from clients.high_level.streams import LOOK_EVERY, TURN_S, PartitionFeed
from tests.clients.high_level.streams.feeds import a_feed, a_stream, play, put, take
from tests.stage.clock import VirtualTimeLoop


async def turns_of(feed: PartitionFeed, count: int, work_s: Callable[[int], float]) -> list[int]:
    """Count the messages that an application gets between two turns of the loop, one by one.

    The application works so long on each offset, and waits for nothing else.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    counts = [0]

    async def others() -> None:
        while True:
            counts.append(0)
            await asyncio.sleep(0)

    watcher = asyncio.ensure_future(others())
    for _ in range(count):
        message = await anext(feed.stream)
        counts[-1] += 1
        loop.work(work_s(message.offset))
    watcher.cancel()
    return [number for number in counts if number]


def test_an_application_that_never_waits_lets_the_event_loop_turn() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 10_000)
        work_s = TURN_S / 1000
        turns = await turns_of(feed, 10_000, lambda offset: work_s)
        assert sum(turns) == 10_000
        assert max(turns) <= 1000 + LOOK_EVERY

    play(scene)


def test_an_application_that_gets_slow_all_of_a_sudden_keeps_the_loop_for_some_messages() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 10_500)
        turns = await turns_of(feed, 10_500, lambda offset: 0.0 if offset < 10_000 else 10.0)
        first, *others = turns
        assert 10_000 < first <= 10_000 + LOOK_EVERY
        assert set(others) == {1}

    play(scene)


def test_small_chunks_share_a_turn() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        for offset in range(100):
            put(feed, offset, offset + 1)
        turns = await turns_of(feed, 100, lambda offset: TURN_S / 50)
        assert len(turns) <= 3

    play(scene)


def test_a_feed_closed_while_the_loop_turns_delivers_no_more() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        feed = a_feed(a_stream(timeout_ms=1000))
        put(feed, 0, 1000)
        await take(feed.stream, 3)
        loop.work(TURN_S)
        loop.call_soon(feed.close)
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)
        assert feed.position == 3

    play(scene)
