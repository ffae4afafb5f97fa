"""Fetching for streams: a few loops per broker, each with one request for all its partitions.

A partition whose stream is full is left out of the request, so one that nobody reads holds up
neither the others nor a rebalance. An error hands partitions back to the leader finder. A message
that does not fit in what was asked for is asked for again, in twice as much.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import attrs

from clients.errors import ClientError, CorruptFetch, MessageSizeTooLarge, OffsetOutOfRange
from clients.fetching import FetchedPartition, fetch_once
from clients.high_level.config import ConsumerConfig
from clients.high_level.metrics import Meters
from clients.high_level.streams import Chunk, PartitionFeed
from clients.offset_requests import (
    EARLIEST_TIME,
    LATEST_TIME,
    list_offsets_request,
    listed_offsets,
)
from clients.transport.connection import Connection
from protocol.errors import ApiError, ErrorCode
from protocol.java_hash import abs31, java_string_hash, wrap32
from protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

RESET_TIMES = {"smallest": EARLIEST_TIME, "largest": LATEST_TIME}

SILENCE_S = 30.0
"""A broker that stops or dies is no news: others lead once its session is over. One that is said to
lead for longer than that, and does not answer, is told of."""

Feeds = Iterable[PartitionFeed]


def fetcher_id(partition: TopicPartition, num_fetchers: int) -> int:
    """Which of its leader's fetchers reads a partition: Kafka's rule, in Java's arithmetic."""
    return (
        abs31(wrap32(31 * java_string_hash(partition.topic) + partition.partition)) % num_fetchers
    )


@attrs.define(eq=False)
class Silence:
    """The time since when a broker cannot be read from."""

    since_s: float
    _heard: bool = False
    _told: bool = False

    def level(self, now_s: float) -> int:
        """The level at which to log another failure: the first, and once when it has lasted."""
        if not self._heard:
            self._heard = True
            return logging.INFO
        if self._told or now_s - self.since_s < SILENCE_S:
            return logging.DEBUG
        self._told = True
        return logging.WARNING


@attrs.define(eq=False)
class BrokerFetcher:
    """What is read from one broker over one connection. It ends when nothing is.

    `silences` has the brokers that cannot be read from.
    """

    config: ConsumerConfig
    broker_id: int
    connect: Callable[[], Awaitable[Connection]]
    give_back: Callable[[Feeds], None]
    meters: Meters
    silences: dict[int, Silence] = attrs.field(factory=dict)
    feeds: list[PartitionFeed] = attrs.field(factory=list)
    wake: asyncio.Event = attrs.field(factory=asyncio.Event)

    def add(self, feed: PartitionFeed) -> None:
        """Fetch a partition too. Whoever fetched it before lets go of it."""
        feed.leader = self.broker_id
        self.feeds.append(feed)
        self.wake.set()

    async def run(self) -> None:
        """Fetch until every feed is closed, given back, or fetched from another broker."""
        while True:
            self.wake.clear()
            self.feeds = [feed for feed in dict.fromkeys(self.feeds) if self._is_ours(feed)]
            if not self.feeds:
                return
            ready = [feed for feed in self.feeds if self._is_ready(feed)]
            if not ready:
                await self.wake.wait()
                continue
            try:
                await self._serve(ready)
            except (ClientError, ApiError) as error:
                now = asyncio.get_running_loop().time()
                level = self.silences.setdefault(self.broker_id, Silence(now)).level(now)
                _log.log(level, "fetching stops until leaders are looked up again: %s", error)
                self._drop(self.feeds)
            self.feeds = self.feeds[1:] + self.feeds[:1]  # brokers fill in the order asked

    def _is_ours(self, feed: PartitionFeed) -> bool:
        return feed.live and feed.leader == self.broker_id

    def _is_ready(self, feed: PartitionFeed) -> bool:
        """A reset waits for no room in the stream: what is produced from then on counts."""
        due = feed.fetch_offset is None and self.config.auto_offset_reset != "none"
        return due or feed.stream.has_room

    async def _serve(self, ready: list[PartitionFeed]) -> None:
        connection = await self.connect()
        if lost := [feed for feed in ready if feed.fetch_offset is None]:
            await self._reset(connection, lost)
        asked = {
            feed.partition: (feed.fetch_offset, feed)
            for feed in ready
            if self._is_ours(feed) and feed.fetch_offset is not None and feed.stream.has_room
        }
        if not asked:
            return
        size = self.config.fetch_message_max_bytes
        fetched = await fetch_once(
            connection,
            {p: (offset, feed.fetch_bytes or size) for p, (offset, feed) in asked.items()},
            max_wait_ms=self.config.fetch_wait_max_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
        )
        self.silences.pop(self.broker_id, None)
        self.meters.requests[self.broker_id].mark()
        for partition, (offset, feed) in asked.items():
            if self._is_ours(feed) and feed.fetch_offset == offset:
                self._take(feed, offset, fetched[partition])

    def _take(self, feed: PartitionFeed, offset: int, fetched: FetchedPartition) -> None:
        match fetched.error:
            case ErrorCode.NONE:
                feed.fetch_bytes = None
                self._pass_on(feed, offset, fetched)
            case ErrorCode.CORRUPT_MESSAGE | ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                corrupt = CorruptFetch(feed.partition, fetched.next_offset, fetched.detail)
                self._pass_on(feed, offset, fetched, corrupt)
            case ErrorCode.INVALID_FETCH_SIZE:
                self._ask_for_more(feed, offset)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                _log.warning("%s: offset %d is out of range", feed.partition, offset)
                if self.config.auto_offset_reset == "none":
                    self._raise(feed, OffsetOutOfRange(feed.partition, offset))
                else:
                    feed.lose_place(offset)
            case error:
                _log.info("%s: %s", feed.partition, error.name)
                self._drop([feed])

    def _pass_on(
        self,
        feed: PartitionFeed,
        offset: int,
        fetched: FetchedPartition,
        failure: ClientError | None = None,
    ) -> None:
        """Queue what came, and only then move on: nothing is lost in between."""
        if fetched.next_offset > offset:
            rows, kind = fetched.rows, fetched.timestamp_type
            feed.stream.put(Chunk(feed, offset, fetched.next_offset, rows, kind))
            feed.fetch_offset = fetched.next_offset
            self.meters.fetched(feed.partition.topic, len(rows), fetched.size_bytes)
            self.meters.broker_bytes[self.broker_id].mark(fetched.size_bytes)
        if fetched.high_watermark >= 0:  # a leader that is new may not know it yet
            feed.high_watermark = fetched.high_watermark
        if failure:
            self._raise(feed, failure)

    def _ask_for_more(self, feed: PartitionFeed, offset: int) -> None:
        """In twice as much, up to a bound; a message beyond that is the application's to judge."""
        asked_for = feed.fetch_bytes or self.config.fetch_message_max_bytes
        if asked_for < self.config.largest_fetch_bytes:
            feed.fetch_bytes = min(asked_for * 2, self.config.largest_fetch_bytes)
        else:
            self._raise(feed, MessageSizeTooLarge(feed.partition, offset, asked_for))

    def _raise(self, feed: PartitionFeed, failure: ClientError) -> None:
        """From the stream, behind what is queued; it is tried again after a pause, and raised
        again, never skipped."""
        at = feed.fetch_offset
        feed.stream.put(Chunk(feed, at, at, error=failure))
        self._drop([feed])

    async def _reset(self, connection: Connection, feeds: list[PartitionFeed]) -> None:
        """Find where auto.offset.reset leads."""
        if self.config.auto_offset_reset == "none":
            for feed in feeds:
                self._raise(feed, OffsetOutOfRange(feed.partition, None))
            return
        time = RESET_TIMES[self.config.auto_offset_reset]
        request = list_offsets_request({feed.partition: time for feed in feeds})
        answers = listed_offsets(await connection.call(request))
        for feed in filter(self._is_ours, feeds):
            answer = answers.get(feed.partition)
            code = ErrorCode.of(answer.error_code) if answer else ErrorCode.UNKNOWN_SERVER_ERROR
            if answer is None or code is not ErrorCode.NONE:
                _log.info("%s: no offset to reset to: %s", feed.partition, code.name)
                self._drop([feed])
                continue
            offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
            _log.info(
                "%s: reset to %s offset %d", feed.partition, self.config.auto_offset_reset, offset
            )
            feed.reset(offset)

    def give_up(self) -> None:
        """Give all partitions back."""
        self._drop(self.feeds)

    def _drop(self, feeds: Feeds) -> None:
        gone = list(feeds)
        rest = set(self.feeds).difference(gone)
        self.feeds = [feed for feed in self.feeds if feed in rest]
        leaderless = [feed for feed in gone if self._is_ours(feed)]
        for feed in leaderless:
            feed.leader = None
        self.give_back(leaderless)


@attrs.define(eq=False)
class Fetchers:
    """The fetchers of one connector. `spawn` starts a loop in the connector's task group."""

    config: ConsumerConfig
    connect: Callable[[int, int], Awaitable[Connection]]
    give_back: Callable[[Feeds], None]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    meters: Meters
    _silences: dict[int, Silence] = attrs.field(factory=dict)
    _running: dict[tuple[int, int], BrokerFetcher] = attrs.field(factory=dict)
    """By broker id and fetcher id."""

    def add(self, broker_id: int, feed: PartitionFeed) -> None:
        """Fetch a partition from its leader, and from nobody else."""
        key = broker_id, fetcher_id(feed.partition, self.config.num_consumer_fetchers)
        if (fetcher := self._running.get(key)) is None:
            fetcher = self._running[key] = BrokerFetcher(
                self.config,
                broker_id,
                lambda: self.connect(*key),
                self.give_back,
                self.meters,
                self._silences,
            )
            self.spawn(self._run(key, fetcher))
        fetcher.add(feed)

    def wake(self) -> None:
        """A stream has room again, or a feed was closed."""
        for fetcher in self._running.values():
            fetcher.wake.set()

    async def _run(self, key: tuple[int, int], fetcher: BrokerFetcher) -> None:
        """One broker's trouble is not the others': what it did not expect ends this loop alone."""
        try:
            await fetcher.run()
        except Exception:
            _log.exception("fetcher %d of broker %d failed", key[1], key[0])
            fetcher.give_up()
        finally:
            del self._running[key]
