"""Resets in a stream, and feeds that are closed."""

import pytest

from clients.errors import ConsumerTimeout
from clients.high_level.streams import PartitionFeed
from tests.clients.high_level.streams.feeds import P1, a_feed, a_stream, play, put, take


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
