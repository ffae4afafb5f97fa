"""Streams: order, what counts as consumed, stale chunks, back-pressure, time-outs, the end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from clients.errors import ConsumerTimeout, StreamInUse
from clients.high_level.streams import (
    LOOK_EVERY,
    TURN_S,
    Chunk,
    MessageStream,
    PartitionFeed,
)
from clients.serializers import int_decoder, str_decoder
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from tests.stage.clock import VirtualTimeLoop, run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def records(start: int, end: int) -> list[Record]:
    return [Record(offset, 0, None, b"%d" % offset, ()) for offset in range(start, end)]


def a_stream(**settings: Any) -> MessageStream:
    return MessageStream(str_decoder, str_decoder, **settings)


def a_feed(stream: MessageStream, position: int | None = 0) -> PartitionFeed:
    return PartitionFeed(P0, stream, position)


def put(feed: PartitionFeed, start: int, end: int, next_offset: int | None = None) -> None:
    feed.stream.put(Chunk(feed, start, next_offset or end, records(start, end)))


async def take(stream: MessageStream, count: int) -> list[int]:
    return [(await anext(stream)).offset for _ in range(count)]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene())


def test_messages_come_in_order_chunk_after_chunk() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 3)
        put(feed, 3, 5)
        assert await take(feed.stream, 5) == [0, 1, 2, 3, 4]

    play(scene)


def test_a_message_shows_where_it_is_from_and_what_is_in_it() -> None:
    async def scene() -> None:
        stream = MessageStream(str_decoder, int_decoder)
        feed = PartitionFeed(P1, stream, 7)
        record = Record(7, 1234, b"key", b"\x00\x00\x00\x05", (("h", b"x"),))
        stream.put(Chunk(feed, 7, 8, [record], timestamp_type=1))
        message = await anext(stream)
        assert (message.topic, message.partition, message.offset) == ("t", 1, 7)
        assert (message.timestamp_ms, message.timestamp_type) == (1234, 1)
        assert (message.key, message.value, message.headers) == ("key", 5, (("h", b"x"),))
        assert message.topic_partition == P1
        assert repr(message) == "MessageAndMetadata(t-1 @ 7)"

    play(scene)


def test_key_and_value_are_decoded_once() -> None:
    async def scene() -> None:
        decoded: list[bytes | None] = []
        stream = MessageStream(decoded.append, decoded.append)
        feed = PartitionFeed(P1, stream, 7)
        stream.put(Chunk(feed, 7, 8, [Record(7, 0, b"key", b"value", ())]))
        message = await anext(stream)
        assert decoded == []
        assert [message.value, message.key, message.value, message.key] == [None] * 4
        assert decoded == [b"value", b"key"]

    play(scene)


def test_a_decoder_that_fails_does_not_stop_the_stream() -> None:
    async def scene() -> None:
        stream = MessageStream(str_decoder, int_decoder)
        feed = a_feed(stream)
        put(feed, 0, 2)
        message = await anext(stream)
        with pytest.raises(Exception, match="4 bytes"):
            _ = message.value
        await anext(stream)
        assert feed.position == 1

    play(scene)


def test_a_message_counts_as_consumed_when_the_next_is_asked_for() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100))
        put(feed, 0, 2)
        await anext(feed.stream)
        assert feed.position == 0
        await anext(feed.stream)
        assert feed.position == 1
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)
        assert feed.position == 2

    play(scene)


def test_offsets_that_hold_no_message_are_passed_over() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=0))
        put(feed, 5, 6, next_offset=10)
        feed.stream.put(Chunk(feed, 10, 12))
        assert await take(feed.stream, 1) == [5]
        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)
        assert feed.position == 12

    play(scene)


def test_the_first_reset_is_a_position_though_others_come_before_it_in_the_stream() -> None:
    async def scene() -> None:
        stream = a_stream()
        before = PartitionFeed(P1, stream, 0)
        feed = a_feed(stream, position=None)
        put(before, 0, 3)
        assert feed.position is None
        feed.reset(100)
        put(feed, 100, 102)
        assert feed.position == 100
        assert await take(stream, 5) == [0, 1, 2, 100, 101]
        assert feed.position == 101

    play(scene)


@pytest.mark.parametrize(
    ("lost", "reset", "positions"),
    [
        (6, 100, [100, 100, 100]),  # the log begins behind 6: what is queued is gone from it
        (6, 4, [3, 4, 4]),  # the log was cut at 4: 3 is in it, 4 and 5 are not
        (6, 2, [2, 2, 2]),
    ],
)
def test_a_reset_counts_while_messages_from_before_it_are_queued_and_skips_none_in_the_log(
    lost: int, reset: int, positions: list[int]
) -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(), position=3)
        put(feed, 3, 6)
        await anext(feed.stream)
        feed.lose_place(lost)
        assert feed.position == 3
        feed.reset(reset)
        put(feed, reset, reset + 1)
        seen = []
        for offset in (4, 5, reset):
            seen.append(feed.position)
            assert (await anext(feed.stream)).offset == offset
        assert (seen, feed.position) == (positions, reset)

    play(scene)


def test_of_resets_one_behind_the_other_each_counts() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=0), position=3)
        put(feed, 3, 6)
        feed.lose_place(6)
        feed.reset(100)
        put(feed, 100, 150)
        feed.lose_place(150)
        feed.reset(120)
        assert feed.position == 100

        feed.lose_place(120)
        feed.reset(900)
        assert feed.position == 900
        assert await take(feed.stream, 53) == [3, 4, 5, *range(100, 150)]

        with pytest.raises(ConsumerTimeout):
            await anext(feed.stream)

        assert feed.position == 900

    play(scene)


def test_a_feed_that_is_closed_keeps_the_reset_its_stream_had_not_come_to() -> None:
    async def scene() -> None:
        stream = a_stream()
        before = PartitionFeed(P1, stream, 0)
        feed = a_feed(stream, position=None)
        put(before, 0, 3)
        feed.reset(100)
        feed.close()
        feed.reset(200)
        assert feed.position == 100

    play(scene)


def test_nothing_of_a_closed_feed_is_handed_out_or_counted() -> None:
    async def scene() -> None:
        stream = a_stream()
        gone = a_feed(stream)
        stays = PartitionFeed(P1, stream, 50)
        put(gone, 0, 3)
        put(gone, 3, 5)
        put(stays, 50, 51)
        await anext(stream)
        gone.close()
        assert (await anext(stream)).partition == 1
        assert gone.position == 0

    play(scene)


def test_a_partition_that_comes_back_starts_anew_whatever_is_left_of_its_former_feed() -> None:
    async def scene() -> None:
        stream = a_stream()
        former = a_feed(stream)
        put(former, 0, 3)
        await anext(stream)
        former.close()
        feed = a_feed(stream, position=1)
        put(feed, 1, 3)
        assert await take(stream, 2) == [1, 2]
        assert (former.position, feed.position) == (0, 2)

    play(scene)


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


def test_the_position_is_behind_what_has_been_consumed_however_often_it_is_asked() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        feed.stream.put(Chunk(feed, 0, 20, [*records(0, 3), *records(10, 12)]))
        seen = []
        for _ in range(5):
            await anext(feed.stream)
            seen.append((feed.position, feed.position))
        assert seen == [(0, 0), (1, 1), (2, 2), (3, 3), (11, 11)]

    play(scene)


def test_a_chunk_of_a_closed_feed_is_not_taken() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        feed.close()
        put(feed, 0, 3)
        assert feed.stream.queue_size == 0

    play(scene)
