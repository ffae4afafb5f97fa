"""Fetching for streams, from a broker that is a connection with scripted responses."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest

from clients.errors import (
    ConnectionFailed,
    CorruptFetch,
    MessageSizeTooLarge,
    OffsetOutOfRange,
)
from clients.high_level.config import load_consumer_config
from clients.high_level.fetchers import SILENCE_S, BrokerFetcher, Fetchers, fetcher_id
from clients.high_level.metrics import Meters
from clients.high_level.streams import MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartition,
    FetchResponseTopic,
)
from protocol.messages.list_offsets import (
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsResponsePartition,
    ListOffsetsResponseTopic,
)
from protocol.records.batch import encode_batch
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT_S = 0.1


class Broker:
    """Partitions as [start, end) of offsets, a batch of ten records each; errors on demand."""

    request_timeout_ms = 30_000

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, tuple[int, int]] = {P0: (0, 30), P1: (0, 30)}
        self.errors: dict[TopicPartition, ErrorCode] = {}
        self.asked: list[dict[TopicPartition, int]] = []
        self.corrupt_at: int | None = None
        self.sends_parts = False
        """True: send a part of a batch that is larger than the limit, as brokers before KIP-74."""
        self.sizes: list[tuple[int, int]] = []
        """Limits of the requests: (of the whole response, of its first partition)."""
        self.down = False

    async def connect(self) -> Any:
        return self

    async def call(self, request: Any, *, timeout_ms: int | None = None) -> Any:
        if self.down:
            raise ConnectionFailed("h", 1, "down")
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)

        assert isinstance(request, FetchRequest)
        asked = {
            TopicPartition(topic.topic, p.partition): p.fetch_offset
            for topic in request.topics
            for p in topic.partitions
        }
        self.asked.append(asked)
        sizes = {
            TopicPartition(topic.topic, p.partition): p.partition_max_bytes
            for topic in request.topics
            for p in topic.partitions
        }
        self.sizes.append((request.max_bytes, next(iter(sizes.values()))))
        await asyncio.sleep(WAIT_S)
        return FetchResponse(
            responses=[
                FetchResponseTopic(topic=p.topic, partitions=[self._fetch(p, offset, sizes[p])])
                for p, offset in asked.items()
            ]
        )

    def _fetch(self, partition: TopicPartition, offset: int, size: int) -> FetchResponsePartition:
        start, end = self.logs[partition]
        code = self.errors.get(partition, ErrorCode.NONE)
        if code is ErrorCode.NONE and not start <= offset <= end:
            code = ErrorCode.OFFSET_OUT_OF_RANGE
        batch = b""

        if code is ErrorCode.NONE and offset < end:
            first = offset - offset % 10
            values = [(0, None, b"%d" % (first + i), ()) for i in range(10)]
            batch = encode_batch(values, base_offset=first)
            if self.corrupt_at == first:
                batch = batch[:-1] + bytes([batch[-1] ^ 1])
            if self.sends_parts:
                batch = batch[:size]

        return FetchResponsePartition(
            partition_index=partition.partition,
            error_code=code,
            high_watermark=end,
            last_stable_offset=end,
            aborted_transactions=None,
            records=memoryview(batch),
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsResponseTopic(
                    name=topic.name,
                    partitions=[
                        ListOffsetsResponsePartition(
                            partition_index=p.partition_index,
                            error_code=self.errors.get(
                                TopicPartition(topic.name, p.partition_index), ErrorCode.NONE
                            ),
                            old_style_offsets=(),
                            offset=self.logs[TopicPartition(topic.name, p.partition_index)][
                                0 if p.timestamp == -2 else 1
                            ],
                        )
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class Scene:
    """A fetcher at work on a broker; `feed` makes streams."""

    def __init__(self, **settings: str) -> None:
        config, _ = load_consumer_config({"group.id": "g", "zookeeper.connect": "z:1", **settings})
        self.broker = Broker()
        self.given_back: list[PartitionFeed] = []
        self.meters = Meters(asyncio.get_running_loop().time)
        self.fetcher = BrokerFetcher(config, 7, self.broker.connect, self._give_back, self.meters)

    def _give_back(self, feeds: Iterable[PartitionFeed]) -> None:
        self.given_back += feeds

    def feed(self, partition: TopicPartition, position: int | None) -> PartitionFeed:
        stream = MessageStream(
            bytes_decoder,
            bytes_decoder,
            max_chunks=self.fetcher.config.queued_max_message_chunks,
            timeout_ms=1000,
            on_room=self.fetcher.wake.set,
        )
        feed = PartitionFeed(partition, stream, position)
        self.fetcher.add(feed)
        return feed

    async def __aenter__(self) -> "Scene":
        self.task = asyncio.ensure_future(self.fetcher.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()


async def offsets(feed: PartitionFeed, count: int) -> list[int]:
    return [(await anext(feed.stream)).offset for _ in range(count)]


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_in_virtual_time(scene())


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
            assert feed.stream._chunks == type(feed.stream._chunks)()
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
        assert feed.high_watermark == 30

    play(scene)


def test_a_partition_belongs_to_the_fetcher_that_kafka_would_give_it() -> None:
    assert [fetcher_id(TopicPartition("topic1", p), 2) for p in range(3)] == [0, 1, 0]
    assert [fetcher_id(TopicPartition("topic2", p), 2) for p in range(3)] == [1, 0, 1]


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

    play(scene)
