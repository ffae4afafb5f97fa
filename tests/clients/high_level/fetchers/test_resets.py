"""Offsets out of range, and resets."""

import asyncio
from typing import Any

import pytest

from clients.errors import OffsetOutOfRange
from clients.high_level.streams import PartitionFeed
from tests.clients.high_level.fetchers.scene import P0, P1, Scene, offsets, play


@pytest.mark.parametrize(("reset", "position"), [("smallest", 10), ("largest", 30)])
@pytest.mark.parametrize("committed", [None, 5, 10_000])
def test_without_an_offset_in_range_the_reset_decides(
    reset: str, position: int, committed: int | None
) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": reset})
        work.broker.logs[P0] = (10, 30)
        feed = work.feed(P0, committed)
        async with work:
            if reset == "smallest":
                assert await offsets(feed, 20) == list(range(10, 30))
            else:
                reading = asyncio.ensure_future(anext(feed.stream))
                await asyncio.sleep(0.5)
                assert feed.position == position
                reading.cancel()

    play(scene)


@pytest.mark.parametrize("committed", [None, 5])
def test_a_reset_to_the_end_keeps_its_place_while_the_application_is_busy_elsewhere(
    committed: int | None,
) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "largest", "queued.max.message.chunks": "9"})
        work.broker.logs[P1] = (10, 30)
        busy_with = work.feed(P0, 0)
        async with work:
            assert await offsets(busy_with, 1) == [0]
            feed = PartitionFeed(P1, busy_with.stream, committed)
            work.fetcher.add(feed)
            await asyncio.sleep(1)
            work.broker.logs[P1] = (10, 60)
            await asyncio.sleep(60)
            assert feed.position == 30
            assert feed.fetch_offset == 60

    play(scene)


def test_a_partition_is_reset_to_the_end_though_its_stream_is_full() -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "largest"})
        unread = work.feed(P0, 0)
        async with work:
            await asyncio.sleep(10)
            assert not unread.stream.has_room
            feed = PartitionFeed(P1, unread.stream, None)
            work.fetcher.add(feed)
            work.fetcher.wake.set()
            await asyncio.sleep(1)
            work.broker.logs[P1] = (0, 60)
            assert feed.position == 30
            assert sorted(await offsets(unread, 60)) == list(range(60))

    play(scene)


@pytest.mark.parametrize("committed", [None, 5, 10_000])
def test_without_a_reset_an_offset_out_of_range_is_raised_from_the_stream(
    committed: int | None,
) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "none"})
        work.broker.logs[P0] = (10, 30)
        feed, other = work.feed(P0, committed), work.feed(P1, 0)
        async with work:
            with pytest.raises(OffsetOutOfRange) as raised:
                await anext(feed.stream)
            assert (raised.value.partition, raised.value.offset) == (P0, committed)
            assert feed.position == committed
            assert work.given_back == [feed]
            assert await offsets(other, 30) == list(range(30))

    play(scene)


def test_a_reset_of_a_feed_that_is_closed_meanwhile_reaches_nobody() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, None)
        call = work.broker.call

        async def closing(request: Any, *, timeout_ms: int | None = None) -> Any:
            answer = await call(request)
            feed.close()
            return answer

        work.broker.call = closing  # type: ignore[method-assign]
        async with work:
            await work.task
            assert feed.stream.queue_size == 0

    play(scene)


def test_an_offset_out_of_range_is_logged_with_the_place_where_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene(**{"auto.offset.reset": "smallest"})
        work.broker.logs = {P0: (10, 30), P1: (10, 30)}
        fresh, lost = work.feed(P1, None), work.feed(P0, 99)
        async with work:
            assert await offsets(fresh, 1) == await offsets(lost, 1) == [10]

    play(scene)
    assert caplog.messages == [
        "t-0: offset 99 is out of range; auto.offset.reset=smallest decides what follows",
        "t-0: reset to smallest offset 10",
    ]
