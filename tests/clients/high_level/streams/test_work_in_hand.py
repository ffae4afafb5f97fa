"""How long the application works on a message, whatever becomes of the message's chunk."""

import asyncio
from collections.abc import Callable

import pytest

from clients.high_level.heartbeats import PollClock
from clients.high_level.streams import PartitionFeed
from tests.clients.high_level.streams.feeds import P1, a_feed, a_stream, play, put, take

LIMIT_MS = 1000


def pause(feed: PartitionFeed) -> None:
    feed.stream.hold(feed)


@pytest.mark.parametrize("take_away", [PartitionFeed.close, pause])
def test_work_lasts_until_the_next_message_is_asked_for_though_its_partition_is_taken_away(
    take_away: Callable[[PartitionFeed], None],
) -> None:
    async def scene() -> None:
        feed = a_feed(a_stream(timeout_ms=100))
        clock = PollClock([feed.stream], LIMIT_MS)
        put(feed, 0, 10)
        await take(feed.stream, 3)
        assert clock.find_overdue(10.0) is None

        take_away(feed)
        # What is fetched meanwhile is no sign of life.
        other = PartitionFeed(P1, feed.stream, 0)
        put(other, 0, 10)
        assert clock.find_overdue(10.9) is None
        overdue = clock.find_overdue(11.5)
        assert overdue is not None
        assert overdue.worked_ms == 1500

        await take(feed.stream, 1)
        assert clock.find_overdue(11.6) is None
        assert clock.find_overdue(12.5) is None

    play(scene)


@pytest.mark.parametrize("take_away", [PartitionFeed.close, pause])
def test_who_waits_for_a_message_or_has_had_none_works_on_nothing(
    take_away: Callable[[PartitionFeed], None],
) -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        put(feed, 0, 1)
        take_away(feed)
        assert feed.stream.work_in_hand() is None

        feed = a_feed(a_stream())
        put(feed, 0, 1)
        await take(feed.stream, 1)
        waiting = asyncio.ensure_future(anext(feed.stream))
        await asyncio.sleep(1)
        take_away(feed)
        assert feed.stream.work_in_hand() is None
        feed.stream.end()
        with pytest.raises(StopAsyncIteration):
            await waiting

    play(scene)


def test_each_message_is_other_work_though_each_comes_in_a_chunk_of_its_own() -> None:
    async def scene() -> None:
        feed = a_feed(a_stream())
        works = []
        for offset in range(200):
            waiting = asyncio.ensure_future(anext(feed.stream))
            await asyncio.sleep(1)
            put(feed, offset, offset + 1)
            await waiting
            works.append(feed.stream.work_in_hand())
        assert None not in works
        assert len(set(works)) == 200

    play(scene)
