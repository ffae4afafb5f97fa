"""Fetchers of several brokers, and partitions that move between them."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from clients.errors import BrokerError
from clients.high_level.config import load_consumer_config
from clients.high_level.fetchers import QUOTA, SILENCE_S, BrokerFetcher, Fetchers
from clients.high_level.metrics import Meters
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.clients.high_level.fetchers.scene import P0, P1, WAIT_S, Broker, Scene, offsets, play


def test_each_fetcher_of_a_broker_has_a_connection_of_its_own() -> None:
    async def scene() -> None:
        least = {"group.id": "g", "zookeeper.connect": "z:1", "num.consumer.fetchers": "3"}
        config, _ = load_consumer_config(least)
        broker = Broker()
        connected = []
        tasks = []

        async def connect(broker_id: int, fetcher: int) -> Any:
            connected.append((broker_id, fetcher))
            return broker

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            tasks.append(asyncio.ensure_future(work))

        fetchers = Fetchers(config, connect, lambda feeds: None, spawn, Meters(lambda: 0.0))
        stream = MessageStream(bytes_decoder, bytes_decoder)
        partitions = [TopicPartition("t", p) for p in range(6)]
        broker.logs = dict.fromkeys(partitions, (0, 0))
        for partition in partitions:
            fetchers.add(7, PartitionFeed(partition, stream, 0))
        await asyncio.sleep(WAIT_S / 2)
        assert sorted(connected) == [(7, 0), (7, 1), (7, 2)]
        assert sorted(p for asked in broker.asked for p in asked) == partitions
        for task in tasks:
            task.cancel()

    play(scene)


def test_a_partition_that_moves_to_another_broker_is_read_on_without_gap_or_repeat() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        config = work.fetcher.config
        other = BrokerFetcher(config, 8, work.broker.connect, work._give_back, work.meters)
        async with work:
            assert await offsets(feed, 5) == list(range(5))
            await asyncio.sleep(WAIT_S / 2)  # the next fetch is under way
            other.add(feed)
            reading = asyncio.ensure_future(other.run())
            assert await offsets(feed, 25) == list(range(5, 30))
            await asyncio.wait_for(work.task, 60)
            assert work.given_back == []
            assert feed.leader == 8
            reading.cancel()

    play(scene)


def test_what_a_former_leader_says_of_a_partition_that_has_moved_does_not_count() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        async with work:
            await asyncio.sleep(WAIT_S / 2)
            work.broker.errors[P0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
            feed.leader = 8
            await asyncio.wait_for(work.task, 60)
            assert work.given_back == []
            assert (feed.leader, feed.fetch_offset) == (8, 0)

    play(scene)


def test_a_broker_that_goes_is_no_news_until_it_is_said_to_lead_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def levels() -> list[str]:
        return [record.levelname for record in caplog.records if "stops" in record.message]

    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        work.broker.down = True
        for second in range(100):
            await work.fetcher.run()
            work.fetcher.add(feed)
            await asyncio.sleep(1)
            expected = ["INFO"] if second < SILENCE_S else ["INFO", "WARNING"]
            assert levels() == expected
        assert feed.trouble == "h:1: down"

        # Its end is said too, and the next silence is another.
        caplog.clear()
        work.broker.down = False
        async with work:
            await asyncio.sleep(2 * WAIT_S)
            assert (feed.trouble, levels()) == (None, [])
            assert caplog.messages == ["broker 7: fetching goes on"]

    play(scene)


def test_a_broker_that_does_not_respond_is_said_to_be_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        work.broker.wait_s = 20
        async with work:
            await asyncio.sleep(4)
            assert (feed.trouble, caplog.messages) == ("no response", [])
            await asyncio.sleep(15)
            text = "broker 7: fetching stops until leaders are looked up again: no response"
            assert caplog.messages == [text]
            await asyncio.sleep(2)
            assert (feed.trouble, caplog.messages[1:]) == (None, ["broker 7: fetching goes on"])

    play(scene)


def test_a_broker_that_makes_us_wait_for_a_quota_is_not_silent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        work.broker.wait_s = 20
        work.broker.throttled_until_s = asyncio.get_running_loop().time() + 18
        async with work:
            await asyncio.sleep(18.5)
            assert feed.trouble is None
            await asyncio.sleep(2)
            assert (feed.trouble, caplog.messages) == (None, [])

    play(scene)


@pytest.mark.fault("strangers-33")
def test_a_quota_that_lets_nothing_come_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        work.broker.silence_s = 4
        async with work:
            await asyncio.sleep(2)
            # One answer without anything is usual.
            assert (feed.trouble, caplog.messages) == (QUOTA, [])
            await asyncio.sleep(20)
            assert caplog.messages == [f"broker 7: nothing comes: {QUOTA}"]
            work.broker.silence_s, work.broker.wait_s = 0, WAIT_S
            await asyncio.sleep(6)
            assert feed.trouble is None
            assert len(caplog.messages) == 1

    play(scene)


def test_an_error_of_a_topic_that_lasts_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        work = Scene()
        feeds = [work.feed(P0, 0), work.feed(P1, 0)]
        work.broker.errors = dict.fromkeys((P0, P1), ErrorCode.KAFKA_STORAGE_ERROR)
        for second in range(20):
            await work.fetcher.run()
            assert {feed.trouble for feed in feeds} == {"KAFKA_STORAGE_ERROR"}
            for feed in feeds:
                work.fetcher.add(feed)
            await asyncio.sleep(1)
            expected = ["t-0: fetching stops: KAFKA_STORAGE_ERROR"]
            assert caplog.messages == (expected if second >= SILENCE_S else [])

        work.broker.errors = {}
        async with work:
            await asyncio.sleep(2 * WAIT_S)
            assert caplog.messages[1:] == ["t: fetching goes on"]

    play(scene)


@pytest.mark.fault("strangers-180")
def test_a_partition_that_may_not_be_read_raises_so_until_it_may() -> None:
    async def scene() -> None:
        work = Scene()
        feed = work.feed(P0, 0)
        work.broker.logs[P0] = (0, 5)
        work.broker.errors[P0] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        why = "TOPIC_AUTHORIZATION_FAILED: t; ask for READ on the topic"
        for _ in range(5):
            await work.fetcher.run()
            work.fetcher.add(feed)
            with pytest.raises(BrokerError, match=why):
                await anext(feed.stream)
            assert (feed.trouble, feed.position) == (why, 0)

        work.broker.errors = {}
        async with work:
            assert await offsets(feed, 5) == list(range(5))
            assert feed.trouble is None

    play(scene)
