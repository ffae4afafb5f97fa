"""Partitions and brokers with errors."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from clients.errors import CorruptFetch
from clients.high_level.config import load_consumer_config
from clients.high_level.fetchers import Fetchers
from clients.high_level.metrics import Meters
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from protocol.errors import ErrorCode
from tests.clients.high_level.fetchers.scene import P0, P1, WAIT_S, Scene, offsets, play


def test_a_partition_with_an_error_goes_back_and_the_others_go_on() -> None:
    async def scene() -> None:
        work = Scene()
        moved, stays = work.feed(P0, 0), work.feed(P1, 0)
        work.broker.errors[P0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        async with work:
            assert await offsets(stays, 30) == list(range(30))
            assert work.given_back == [moved]
            assert moved.fetch_offset == 0

    play(scene)


def test_a_reset_that_fails_goes_back_too() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, None)
        work.broker.errors[P0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        async with work:
            await work.task
            assert work.given_back == [feed]
            assert feed.fetch_offset is None

    play(scene)


def test_when_the_broker_is_lost_all_its_partitions_go_back_and_the_loop_ends() -> None:
    async def scene() -> None:
        work = Scene()
        feeds = [work.feed(P0, 0), work.feed(P1, 0)]
        work.broker.down = True
        async with work:
            await work.task
            assert work.given_back == feeds

    play(scene)


def test_what_a_closed_feed_had_asked_for_is_dropped() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        async with work:
            await asyncio.sleep(WAIT_S / 2)
            feed.close()
            await work.task
            assert feed.stream.queue_size == 0
            assert work.given_back == []

    play(scene)


def test_a_corrupt_batch_is_raised_behind_what_is_before_it_and_never_skipped() -> None:
    async def scene() -> None:
        work = Scene()
        work.broker.corrupt_at = 10
        feed = work.feed(P0, 0)
        async with work:
            assert await offsets(feed, 10) == list(range(10))
            with pytest.raises(CorruptFetch, match="t-0 at offset 10"):
                await anext(feed.stream)
            assert feed.position == 10
            assert work.given_back == [feed]

    play(scene)


def test_a_fetcher_that_fails_in_a_way_nobody_expected_gives_its_partitions_back() -> None:
    async def scene() -> None:
        config, _ = load_consumer_config({"group.id": "g", "zookeeper.connect": "z:1"})
        given_back: list[PartitionFeed] = []
        tasks: list[asyncio.Future[None]] = []

        async def connect(broker_id: int, fetcher: int) -> Any:
            raise ZeroDivisionError

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            tasks.append(asyncio.ensure_future(work))

        fetchers = Fetchers(config, connect, given_back.extend, spawn, Meters(lambda: 0.0))
        feed = PartitionFeed(P0, MessageStream(bytes_decoder, bytes_decoder), 0)
        for times in (1, 2):
            fetchers.add(7, feed)
            await asyncio.gather(*tasks)
            assert given_back == [feed] * times

    play(scene)
