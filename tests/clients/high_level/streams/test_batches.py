"""Lists of messages: what is in them, and what counts as consumed while one is worked on."""

import asyncio
import contextlib

import pytest

from clients.errors import ConsumerTimeout, StreamInUse
from clients.high_level.heartbeats import PollClock
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from tests.clients.high_level.streams.feeds import P1, a_feed, a_stream, play, put, records, take


async def next_offsets(stream: MessageStream) -> list[int]:
    return [message.offset for message in await anext(stream.batches())]


def test_a_list_has_the_messages_of_one_fetch_of_one_partition() -> None:
    async def scene() -> None:
        stream = a_stream(timeout_ms=100)
        feed = a_feed(stream)
        other = PartitionFeed(P1, stream, 0)
        put(feed, 0, 3)
        put(other, 7, 9)
        feed.stream.put(Chunk(feed, 3, 10))  # a fetch without messages is no list
        put(feed, 10, 11)

        seen = []
        with contextlib.suppress(ConsumerTimeout):
            async for messages in stream.batches():
                seen.append([(message.partition, message.value) for message in messages])
        assert seen == [[(0, "0"), (0, "1"), (0, "2")], [(1, "7"), (1, "8")], [(0, "10")]]

    play(scene)


def test_a_list_counts_as_consumed_when_the_next_one_is_asked_for() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100))
        put(feed, 0, 100)
        put(feed, 100, 150, next_offset=160)
        positions = []
        with contextlib.suppress(ConsumerTimeout):
            async for _ in feed.stream.batches():
                positions.append(feed.position)
        assert positions == [0, 100]
        assert feed.position == 160

    play(scene)


def test_messages_and_lists_may_be_taken_in_turns_and_each_counts_for_itself() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 5)
        put(feed, 5, 9)
        assert await take(feed.stream, 2) == [0, 1]
        assert feed.position == 1
        assert await next_offsets(feed.stream) == [2, 3, 4]
        assert feed.position == 2
        assert await take(feed.stream, 1) == [5]
        assert feed.position == 5
        assert await take(feed.stream, 2) == [6, 7]
        assert feed.position == 7
        assert await next_offsets(feed.stream) == [8]
        assert feed.position == 8

    play(scene)


def test_of_a_list_nothing_counts_if_its_partition_is_released_meanwhile() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100), position=3)
        put(feed, 3, 50)
        await next_offsets(feed.stream)
        feed.close()
        assert feed.position == 3

        with pytest.raises(ConsumerTimeout):
            await next_offsets(feed.stream)
        assert feed.position == 3

    play(scene)


def test_of_a_list_nothing_counts_when_the_stream_ends_meanwhile() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 50)
        put(feed, 50, 60)
        seen = 0
        async for messages in feed.stream.batches():
            seen += len(messages)
            feed.stream.end()
            assert feed.position == 0
        assert seen == 50

    play(scene)


def test_a_list_of_a_paused_partition_counts_when_more_is_asked_for() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100))
        put(feed, 0, 50)
        put(feed, 50, 60)
        await next_offsets(feed.stream)
        feed.stream.hold(feed)
        assert feed.position == 0
        with pytest.raises(ConsumerTimeout):
            await next_offsets(feed.stream)
        assert feed.position == 50

        feed.stream.release(feed)
        assert await next_offsets(feed.stream) == [*range(50, 60)]
        assert feed.position == 50

    play(scene)


def test_a_pause_of_the_stream_repeats_and_loses_nothing_of_its_lists() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100))
        put(feed, 0, 50)
        put(feed, 50, 60)
        await next_offsets(feed.stream)
        feed.stream.pause()
        assert feed.position == 0
        with pytest.raises(ConsumerTimeout):
            await next_offsets(feed.stream)
        feed.stream.resume()
        assert await next_offsets(feed.stream) == [*range(50, 60)]

    play(scene)


def test_who_may_no_longer_consume_gets_no_list() -> None:
    async def scene() -> None:
        entitled = [False]
        feed = a_feed(a_stream(timeout_ms=1000, entitled=lambda: entitled[0]))
        put(feed, 0, 2)
        with pytest.raises(ConsumerTimeout):
            await next_offsets(feed.stream)
        assert feed.position == 0
        entitled[0] = True
        assert await next_offsets(feed.stream) == [0, 1]

    play(scene)


def test_an_error_behind_a_chunk_is_raised_after_its_list_and_the_iteration_goes_on() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        feed.stream.put(Chunk(feed, 0, 2, records(0, 2), error=RuntimeError("a corrupt batch")))
        put(feed, 2, 4)
        batches = feed.stream.batches()
        assert len(await anext(batches)) == 2
        with pytest.raises(RuntimeError, match="corrupt"):
            await anext(batches)
        assert [message.offset for message in await anext(batches)] == [2, 3]

    play(scene)


def test_a_reset_counts_behind_the_list_that_came_before_it() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(), position=3)
        put(feed, 3, 6)
        await next_offsets(feed.stream)
        feed.lose_place(6)
        feed.reset(100)
        put(feed, 100, 102)
        assert await next_offsets(feed.stream) == [100, 101]
        assert feed.position == 100

    play(scene)


def test_a_second_task_that_asks_for_a_list_is_refused_and_the_first_goes_on() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        first = asyncio.ensure_future(next_offsets(feed.stream))
        await asyncio.sleep(1)
        with pytest.raises(StreamInUse):
            await next_offsets(feed.stream)
        with pytest.raises(StreamInUse):
            await anext(feed.stream)
        put(feed, 0, 2)
        assert await first == [0, 1]

    play(scene)


def test_a_list_is_one_piece_of_work_for_the_poll_clock() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        clock = PollClock([feed.stream], 1000)
        for offset in (0, 10):
            put(feed, offset, offset + 10)
            await next_offsets(feed.stream)
            assert clock.find_overdue(offset) is None
        overdue = clock.find_overdue(11.5)
        assert overdue is not None
        assert overdue.worked_ms == 1500

    play(scene)


def test_the_messages_of_a_list_are_decoded_once_and_when_they_are_read() -> None:
    async def scene() -> None:
        decoded: list[bytes | None] = []
        stream = MessageStream(decoded.append, decoded.append)
        put(a_feed(stream), 0, 2)
        first, _ = await anext(stream.batches())
        assert decoded == []
        assert [first.value, first.value] == [None, None]
        assert decoded == [b"0"]

    play(scene)


def test_an_application_that_only_takes_lists_lets_the_event_loop_turn() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        turns = []
        for offset in range(0, 100, 10):
            put(feed, offset, offset + 10)

        async def others() -> None:
            while True:
                turns.append(feed.stream.queue_size)
                await asyncio.sleep(0)

        watcher = asyncio.ensure_future(others())
        for _ in range(10):
            await next_offsets(feed.stream)
            asyncio.get_running_loop().work(1.0)  # type: ignore[attr-defined]
        watcher.cancel()
        assert len(set(turns)) == 10

    play(scene)
