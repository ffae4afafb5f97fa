"""Fetching for streams: one loop per broker, one request for all partitions read from it.

A partition whose stream is full is left out of the request, so one that nobody reads holds up
neither the others nor a rebalance. An error hands partitions back to the leader finder.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

import attrs

from clients.connection import Connection
from clients.errors import ClientError, CorruptFetch
from clients.fetching import FetchedPartition, fetch_once
from clients.high_level.config import ConsumerConfig
from clients.high_level.streams import Chunk, PartitionFeed
from clients.offset_requests import (
    EARLIEST_TIME,
    LATEST_TIME,
    list_offsets_request,
    listed_offsets,
)
from protocol.errors import ApiError, ErrorCode

_log = logging.getLogger(__name__)

MAX_BYTES = 2**31 - 1  # of a response: the partitions' own bounds are the bound, as in Kafka's
RESET_TIMES = {"smallest": EARLIEST_TIME, "largest": LATEST_TIME}

Feeds = Iterable[PartitionFeed]


@attrs.define(eq=False)
class BrokerFetcher:
    """What is read from one broker. It ends when nothing is."""

    config: ConsumerConfig
    connect: Callable[[], Awaitable[Connection]]
    give_back: Callable[[Feeds], None]
    feeds: list[PartitionFeed] = attrs.field(factory=list)
    wake: asyncio.Event = attrs.field(factory=asyncio.Event)

    async def run(self) -> None:
        """Fetch until every feed is closed or given back."""
        while True:
            self.wake.clear()
            self.feeds = [feed for feed in self.feeds if feed.live]
            if not self.feeds:
                return
            ready = [feed for feed in self.feeds if feed.stream.has_room]
            if not ready:
                await self.wake.wait()
                continue
            try:
                await self._serve(ready)
            except (ClientError, ApiError) as error:
                _log.warning("fetching stops until leaders are looked up again: %s", error)
                self._drop(self.feeds)
            self.feeds = self.feeds[1:] + self.feeds[:1]  # brokers fill in the order asked

    async def _serve(self, ready: list[PartitionFeed]) -> None:
        connection = await self.connect()
        if lost := [feed for feed in ready if feed.fetch_offset is None]:
            await self._reset(connection, lost)
        asked = {
            feed.partition: (feed.fetch_offset, feed)
            for feed in ready
            if feed.live and feed.fetch_offset is not None
        }
        fetched = await fetch_once(
            connection,
            {p: (offset, self.config.fetch_message_max_bytes) for p, (offset, _) in asked.items()},
            max_wait_ms=self.config.fetch_wait_max_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=MAX_BYTES,
        )
        for partition, (offset, feed) in asked.items():
            if feed.live:
                self._take(feed, offset, fetched[partition])

    def _take(self, feed: PartitionFeed, offset: int, fetched: FetchedPartition) -> None:
        failure = None
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            _log.warning("%s: offset %d is out of range", feed.partition, offset)
            feed.fetch_offset = None
            return
        if fetched.error is ErrorCode.CORRUPT_MESSAGE:
            failure = CorruptFetch(feed.partition, fetched.next_offset, fetched.detail)
        elif fetched.error is not ErrorCode.NONE:
            _log.info("%s: %s", feed.partition, fetched.error.name)
            self._drop([feed])
            return
        if fetched.next_offset > offset or failure:
            feed.fetch_offset = fetched.next_offset
            feed.stream.put(
                Chunk(
                    feed,
                    offset,
                    fetched.next_offset,
                    fetched.records,
                    fetched.timestamp_type,
                    failure,
                )
            )
        if failure:
            self._drop([feed])  # asked for again after a pause, and raised again: never skipped

    async def _reset(self, connection: Connection, feeds: list[PartitionFeed]) -> None:
        """Find where auto.offset.reset leads; for the stream that is a chunk without records."""
        time = RESET_TIMES[self.config.auto_offset_reset]
        request = list_offsets_request({feed.partition: time for feed in feeds})
        answers = listed_offsets(await connection.call(request))
        for feed in feeds:
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
            feed.fetch_offset = offset
            feed.stream.put(Chunk(feed, offset, offset))

    def _drop(self, feeds: Feeds) -> None:
        gone = list(feeds)
        rest = set(self.feeds).difference(gone)
        self.feeds = [feed for feed in self.feeds if feed in rest]
        self.give_back(feed for feed in gone if feed.live)


@attrs.define(eq=False)
class Fetchers:
    """The fetchers of one connector. `spawn` starts a loop in the connector's task group."""

    config: ConsumerConfig
    connect: Callable[[int], Awaitable[Connection]]
    give_back: Callable[[Feeds], None]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    _by_broker: dict[int, BrokerFetcher] = attrs.field(factory=dict)

    def add(self, broker_id: int, feed: PartitionFeed) -> None:
        """Begin to fetch a partition from its leader."""
        if (fetcher := self._by_broker.get(broker_id)) is None:
            fetcher = self._by_broker[broker_id] = BrokerFetcher(
                self.config, lambda: self.connect(broker_id), self.give_back
            )
            self.spawn(self._run(broker_id, fetcher))
        fetcher.feeds.append(feed)
        fetcher.wake.set()

    def wake(self) -> None:
        """A stream has room again, or a feed was closed."""
        for fetcher in self._by_broker.values():
            fetcher.wake.set()

    async def _run(self, broker_id: int, fetcher: BrokerFetcher) -> None:
        """One broker's trouble is not the others': what it did not expect ends this loop alone."""
        try:
            await fetcher.run()
        except Exception:
            _log.exception("the fetcher of broker %d failed", broker_id)
            self.give_back([feed for feed in fetcher.feeds if feed.live])
        finally:
            del self._by_broker[broker_id]
