"""What a fetcher asks for, how much of it, and when."""

import asyncio

import pytest

from clients.errors import MessageSizeTooLarge
from clients.high_level.fetchers import fetcher_id
from protocol.topic_partition import TopicPartition
from tests.clients.high_level.fetchers.scene import P0, P1, Scene, offsets, play


def test_records_come_from_the_position_on_without_gap_or_repeat() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 13)
        async with work:
            assert await offsets(feed, 17) == list(range(13, 30))

    play(scene)


def test_one_request_asks_for_all_partitions() -> None:
    async def scene() -> None:
        work = Scene()
        first, second = work.feed(P0, 0), work.feed(P1, 5)
        async with work:
            await offsets(first, 1)
            await offsets(second, 1)
            assert work.broker.asked[0] == {P0: 0, P1: 5}

    play(scene)


def test_a_full_stream_is_left_out_and_holds_nobody_up() -> None:
    async def scene() -> None:
        work = Scene()
        unread, read = work.feed(P0, 0), work.feed(P1, 0)
        async with work:
            assert await offsets(read, 30) == list(range(30))
            assert not unread.stream.has_room
            assert P0 not in work.broker.asked[-1]
            assert await offsets(unread, 30) == list(range(30))

    play(scene)


def test_when_every_stream_is_full_nothing_is_asked_until_one_is_read() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        async with work:
            await asyncio.sleep(60)
            asked = len(work.broker.asked)
            assert asked == 2
            await offsets(feed, 11)
            await asyncio.sleep(60)
            assert len(work.broker.asked) > asked

    play(scene)


def test_a_message_that_does_not_fit_is_asked_for_in_twice_as_much() -> None:
    async def scene() -> None:
        work = Scene(**{"fetch.message.max.bytes": "40"})
        work.broker.sends_parts = True
        feed = work.feed(P0, 0)
        async with work:
            assert await offsets(feed, 10) == list(range(10))
            assert [size for _, size in work.broker.sizes[:4]] == [40, 80, 160, 40]

    play(scene)


def test_a_message_beyond_the_bound_is_raised_again_and_again_and_never_skipped() -> None:
    async def scene() -> None:
        work = Scene(**{"fetch.message.max.bytes": "20", "fetch.max.bytes": "70"})
        work.broker.sends_parts = True
        feed = work.feed(P0, 0)
        async with work:
            with pytest.raises(MessageSizeTooLarge, match="does not fit in 70 bytes"):
                await anext(feed.stream)
            assert [size for _, size in work.broker.sizes] == [20, 40, 70]
            assert work.given_back == [feed]
            assert feed.position == 0
            work.fetcher.add(feed)
            again = asyncio.ensure_future(work.fetcher.run())
            with pytest.raises(MessageSizeTooLarge):
                await anext(feed.stream)
            again.cancel()

    play(scene)


def test_a_response_is_bounded_by_fetch_max_bytes() -> None:
    async def scene() -> None:
        work = Scene(**{"fetch.max.bytes": "12345"})
        feed = work.feed(P0, 0)
        async with work:
            await offsets(feed, 1)
            assert work.broker.sizes[0] == (12345, 1_048_576)

    play(scene)


def test_fetches_are_counted_by_broker_and_topic() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        async with work:
            await offsets(feed, 30)
            await asyncio.sleep(1)
        assert work.meters.messages["t"].count == 30
        assert work.meters.requests[7].count == len(work.broker.asked) - 1
        assert work.meters.bytes["t"].count == work.meters.broker_bytes[7].count > 300
        assert feed.end_offset == 30

    play(scene)


@pytest.mark.parametrize(
    ("level", "isolation", "end_offset"), [("read_uncommitted", 0, 30), ("read_committed", 1, 25)]
)
def test_isolation_level_is_in_all_requests_and_says_what_can_be_read(
    level: str, isolation: int, end_offset: int
) -> None:
    async def scene() -> None:
        work = Scene(**{"isolation.level": level, "auto.offset.reset": "smallest"})
        work.broker.last_stable_offset = 25
        feed = work.feed(P0, None)
        async with work:
            await offsets(feed, 1)
        assert work.broker.isolations == {isolation}
        assert feed.end_offset == end_offset

    play(scene)


def test_a_partition_belongs_to_the_fetcher_that_kafka_would_give_it() -> None:
    assert [fetcher_id(TopicPartition("topic1", p), 2) for p in range(3)] == [0, 1, 0]
    assert [fetcher_id(TopicPartition("topic2", p), 2) for p in range(3)] == [1, 0, 1]
