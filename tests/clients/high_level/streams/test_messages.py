"""Messages of a stream: their order, their content, and what counts as consumed."""

import pytest

from clients.errors import ConsumerTimeout
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import int_decoder, str_decoder
from protocol.records.batch import Record
from tests.clients.high_level.streams.feeds import P1, a_feed, a_stream, play, put, records, take


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
