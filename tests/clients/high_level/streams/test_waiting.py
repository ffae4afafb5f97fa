"""Streams that are full, silent, paused, at their end, and waited for."""

import asyncio

import pytest

from clients.errors import ConsumerTimeout, StreamInUse
from clients.high_level.streams import Chunk
from tests.clients.high_level.streams.feeds import a_feed, a_stream, play, put, records, take
from tests.stage.clock import VirtualTimeLoop


def test_a_stream_has_room_until_the_chunks_waiting_reach_the_bound() -> None:
    async def scene() -> None:
        told: list[str] = []
        stream = a_stream(max_chunks=2, on_room=lambda: told.append("room"))
        feed = a_feed(stream)
        put(feed, 0, 1)
        assert stream.has_room
        put(feed, 1, 2)
        assert not stream.has_room
        await anext(stream)
        assert told == ["room"]
        assert stream.has_room

    play(scene)


def test_closing_a_feed_makes_room() -> None:
    async def scene() -> None:
        stream = a_stream(max_chunks=1)
        feed = a_feed(stream)
        put(feed, 0, 1)
        feed.close()
        assert stream.has_room

    play(scene)


@pytest.mark.fault("groups-5")
def test_messages_that_came_while_the_process_stood_still_are_no_silence() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=200))
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        waiting = asyncio.create_task(take(feed.stream, 1))
        await asyncio.sleep(0)
        loop.work(60)
        # The fetcher reads them behind the timers that are due.
        await asyncio.sleep(0.1)
        put(feed, 0, 1)
        assert await waiting == [0]

        loop.call_soon(loop.work, 60)
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)

    play(scene)


def test_silence_for_consumer_timeout_raises_and_the_stream_goes_on() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=200))
        loop = asyncio.get_running_loop()
        for _ in range(2):
            began = loop.time()
            with pytest.raises(ConsumerTimeout):
                await anext(feed.stream)
            assert loop.time() - began == pytest.approx(0.2)
        put(feed, 0, 1)
        assert await take(feed.stream, 1) == [0]

    play(scene)


def test_who_waits_gets_a_message_as_it_comes() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        asyncio.get_running_loop().call_later(3600, put, feed, 0, 1)
        assert await take(feed.stream, 1) == [0]

    play(scene)


def test_a_paused_stream_hands_out_nothing_in_the_middle_of_a_chunk() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100))
        put(feed, 0, 3)
        await anext(feed.stream)
        feed.stream.pause()
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)
        feed.stream.resume()
        assert await take(feed.stream, 2) == [1, 2]

    play(scene)


def test_the_end_of_a_stream_ends_its_iteration_with_chunks_waiting() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 3)
        seen = []
        async for message in feed.stream:
            seen.append(message.offset)
            feed.stream.end()
        assert seen == [0]
        assert [message async for message in feed.stream] == []

    play(scene)


def test_a_stream_that_nothing_feeds_ends_while_it_is_waited_for() -> None:
    async def scene() -> None:
        stream = a_stream()
        asyncio.get_running_loop().call_later(1, stream.end)
        assert [message async for message in stream] == []

    play(scene)


def test_an_error_behind_a_chunk_is_raised_after_its_messages() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        failure = RuntimeError("a corrupt batch")
        feed.stream.put(Chunk(feed, 0, 2, records(0, 2), error=failure))
        assert await take(feed.stream, 2) == [0, 1]
        with pytest.raises(RuntimeError, match="corrupt"):
            await anext(feed.stream)
        assert feed.position == 2

    play(scene)


def test_a_second_task_that_waits_on_a_stream_is_told_so_and_the_first_goes_on() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        first = asyncio.ensure_future(anext(feed.stream))
        await asyncio.sleep(1)
        with pytest.raises(StreamInUse):
            await anext(feed.stream)
        put(feed, 0, 2)
        assert (await first).offset == 0
        assert await take(feed.stream, 1) == [1]
        assert feed.position == 1

    play(scene)


def test_who_gives_up_waiting_leaves_the_stream_to_another() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(feed.stream), 1)
        put(feed, 0, 1)
        assert await take(feed.stream, 1) == [0]

    play(scene)


def test_who_may_no_longer_consume_is_handed_nothing_and_goes_on_when_it_may() -> None:
    async def scene() -> None:
        entitled = [False]
        feed = a_feed(a_stream(timeout_ms=1000, entitled=lambda: entitled[0]))
        put(feed, 0, 2)
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)
        assert feed.position == 0
        entitled[0] = True
        assert await take(feed.stream, 2) == [0, 1]

    play(scene)


def test_a_slow_application_may_no_longer_consume_from_one_message_to_the_next() -> None:
    async def scene() -> None:
        entitled = [True]
        feed = a_feed(a_stream(timeout_ms=1000, entitled=lambda: entitled[0]))
        put(feed, 0, 100)
        for _ in range(3):
            await anext(feed.stream)
            await asyncio.sleep(1)
        entitled[0] = False
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)
        assert feed.position == 3

    play(scene)


def test_a_pause_in_the_middle_of_a_turn_repeats_and_loses_nothing() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 300)
        seen = await take(feed.stream, 5)
        feed.stream.pause()
        assert feed.position == 4
        feed.stream.resume()
        seen += await take(feed.stream, 295)
        assert seen == list(range(300))
        assert feed.position == 299

    play(scene)
