"""What a consumer of many partitions costs: ten times as many cost ten times as much, and no more.

Bytecodes are counted, which no load on the machine changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest

from clients.errors import left_out
from clients.fetching import FetchedPartition
from clients.high_level.config import load_consumer_config
from clients.high_level.delivery import StreamDelivery
from clients.high_level.fetchers import BrokerFetcher, _Asked
from clients.high_level.metrics import Meters
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.dealing import deal
from groups.consumer.decide import decide
from groups.consumer.state import Consumer, ConsumerSettings
from groups.zookeeper.assignment import assign_round_robin
from protocol.errors import ErrorCode
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition
from tests.clients.high_level.deliveries import Store
from tests.clients.high_level.fetchers.scene import Scene
from tests.stage.bytecodes import bytecodes_of
from tests.stage.clock import run_in_virtual_time

FEW, MANY = 100, 1000
MOST_GROWTH = 1.2 * MANY / FEW
"""Linear, with a little for what sorting costs."""
MAX_CHUNKS = 2


def growth(work_on: Callable[[int], Callable[[], object]]) -> float:
    """Return how many times the work on few costs that on many; `work_on` prepares it."""
    few, many = (bytecodes_of(work_on(number)) for number in (FEW, MANY))
    return many / few


@attrs.define(eq=False)
class Full:
    """A stream with a chunk of each of its partitions, and what it calls when it has room."""

    number: int
    rooms: int = 0
    stream: MessageStream = attrs.field(init=False)
    feeds: list[PartitionFeed] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.stream = MessageStream(
            bytes_decoder, bytes_decoder, max_chunks=MAX_CHUNKS, on_room=self._count
        )
        partitions = [TopicPartition("t", number) for number in range(self.number)]
        self.feeds = [PartitionFeed(partition, self.stream, 0) for partition in partitions]
        for feed in self.feeds:
            feed.stream.put(Chunk(feed, 0, 2, [Record(1, 0, None, b"", ())]))

    def _count(self) -> None:
        self.rooms += 1


def in_a_loop(check: Callable[[], None]) -> None:
    async def scene() -> None:
        check()

    run_in_virtual_time(scene())


@pytest.mark.fault("outside-O19")
def test_room_is_asked_for_every_partition_at_a_cost_that_grows_with_them() -> None:
    def look(number: int) -> Callable[[], object]:
        full = Full(number)
        assert not full.stream.has_room
        return lambda: [feed.stream.has_room for feed in full.feeds]

    in_a_loop(lambda: _assert_linear(look))


@pytest.mark.fault("outside-O19")
def test_closing_of_every_feed_costs_each_the_same() -> None:
    def close(number: int) -> Callable[[], object]:
        full = Full(number)

        def work() -> None:
            for feed in full.feeds:
                feed.close()
            assert full.stream.queue_size == 0
            assert full.stream._chunks._of_feeds == {}

        return work

    in_a_loop(lambda: _assert_linear(close))


@pytest.mark.fault("outside-O19")
def test_fetchers_are_woken_for_room_and_not_for_each_chunk_that_is_opened() -> None:
    async def scene() -> None:
        full = Full(MANY)
        for _ in full.feeds:
            await anext(full.stream)
        assert 0 < full.rooms <= MAX_CHUNKS

    run_in_virtual_time(scene())


@pytest.mark.fault("outside-O19")
def test_reading_of_every_partition_by_one_stream_costs_each_the_same() -> None:
    async def read(number: int) -> None:
        work = Scene()
        stream = MessageStream(
            bytes_decoder, bytes_decoder, max_chunks=MAX_CHUNKS, on_room=work.fetcher.wake.set
        )
        for index in range(number):
            partition = TopicPartition("t", index)
            work.broker.logs[partition] = (0, 10)
            work.fetcher.add(PartitionFeed(partition, stream, 0))
        async with work:
            for _ in range(10 * number):
                await anext(stream)

    few, many = (
        bytecodes_of(lambda number=number: run_in_virtual_time(read(number)))  # type: ignore[misc]
        for number in (FEW, MANY)
    )
    assert many / few <= MOST_GROWTH


def test_chunks_of_paused_partitions_cost_the_others_nothing() -> None:
    def read(number: int) -> Callable[[], object]:
        full = Full(number)
        for feed in full.feeds[:-1]:
            full.stream.hold(feed)
        return full.stream._open_chunk

    def check() -> None:
        assert growth(read) <= 1.1

    in_a_loop(check)


@pytest.mark.fault("outside-O19")
def test_fetchers_hear_of_the_room_that_a_pause_makes() -> None:
    def check() -> None:
        full = Full(MAX_CHUNKS)
        assert not full.stream.has_room

        full.stream.hold(full.feeds[0])
        assert full.stream.has_room
        assert full.rooms == 1

    in_a_loop(check)


@pytest.mark.fault("scale-C5")
def test_what_is_handed_out_of_every_partition_is_known_at_a_cost_that_grows_with_them() -> None:
    def hand_out(number: int) -> Callable[[], object]:
        full = Full(number)
        delivery = _delivery(full)

        def work() -> None:
            handed_out = delivery.handed_out()
            assert handed_out == {feed.partition: 1 for feed in full.feeds}

        return work

    in_a_loop(lambda: _assert_linear(hand_out))


@pytest.mark.fault("outside-O19")
def test_fetch_that_every_partition_refuses_costs_each_the_same() -> None:
    def refuse(number: int) -> Callable[[], object]:
        full = Full(number)
        given_back: list[PartitionFeed] = []
        config, _ = load_consumer_config({"group.id": "g", "zookeeper.connect": "z:1"})
        fetcher = BrokerFetcher(config, 7, _nobody, given_back.extend, Meters(lambda: 0.0))
        for feed in full.feeds:
            fetcher.add(feed)

        def work() -> None:
            for feed in full.feeds:
                refused = FetchedPartition(left_out(feed.partition).code)
                fetcher._take(_Asked(feed, 0, -1, -1), refused)
            assert given_back == full.feeds

        return work

    in_a_loop(lambda: _assert_linear(refuse))


def test_seeking_in_every_partition_costs_each_the_same() -> None:
    def seek(number: int) -> Callable[[], object]:
        full = Full(number)
        delivery = _delivery(full)

        def work() -> None:
            for feed in full.feeds:
                delivery.seek(feed.partition, 0)

        return work

    in_a_loop(lambda: _assert_linear(seek))


def test_dealing_to_as_many_streams_as_partitions_grows_with_their_number() -> None:
    def share_out(number: int) -> Callable[[], object]:
        partitions = [TopicPartition("t", index) for index in range(number)]
        return lambda: deal(partitions, number, {})

    _assert_linear(share_out)


def test_a_round_at_the_coordinator_costs_each_partition_the_same() -> None:
    def play_round(number: int) -> Callable[[], object]:
        partitions = frozenset(TopicPartition("t", index) for index in range(number))
        return lambda: _rounds(partitions)

    _assert_linear(play_round)


def test_roundrobin_of_a_group_in_zookeeper_costs_each_partition_the_same() -> None:
    def assign(number: int) -> Callable[[], object]:
        threads: Mapping[str, list[str]] = {"t": [f"g_{index:04}-0" for index in range(10)]}
        return lambda: assign_round_robin(threads, {"t": range(number)})

    _assert_linear(assign)


def _assert_linear(work_on: Callable[[int], Callable[[], object]]) -> None:
    assert growth(work_on) <= MOST_GROWTH


def _delivery(full: Full) -> StreamDelivery:
    delivery = StreamDelivery(
        "g", "g_a", Store(), lambda feeds: None, commit_retries=3, commit_backoff_ms=1000
    )
    delivery.stream_of = lambda partition, thread: full.stream
    delivery._feeds = {feed.partition: feed for feed in full.feeds}
    return delivery


async def _nobody() -> Any:
    raise AssertionError("nothing is sent")


def _rounds(partitions: frozenset[TopicPartition]) -> None:
    """Join, deliver all, be revoked and deliver again."""
    consumer = Consumer(ConsumerSettings("g", ("range",), is_cooperative=False))
    consumer, _ = decide(consumer, on.TopicsRead(frozenset({"t"})))
    for generation_id in (1, 2):
        joined = on.JoinResponded(
            consumer.round, ErrorCode.NONE, "me", generation_id, "range", "another"
        )
        consumer, _ = decide(consumer, joined)
        synced = on.SyncResponded(consumer.round, ErrorCode.NONE, partitions)
        consumer, _ = decide(consumer, synced)
        fetched = on.OffsetsFetched(consumer.round, dict.fromkeys(partitions, 0))
        consumer, effects = decide(consumer, fetched)
        assert any(isinstance(effect, do.Settle) for effect in effects)
        rebalances = on.HeartbeatResponded(generation_id, "me", ErrorCode.REBALANCE_IN_PROGRESS)
        consumer, _ = decide(consumer, rebalances)
