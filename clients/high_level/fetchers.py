"""Fetch for streams: a few loops per broker, each with one request for all its partitions.

A partition whose stream is full is left out of the request, so that an unread one delays neither
the others nor a rebalance. An error returns partitions to the leader finder. A message that does
not fit in the fetch size is fetched again with twice the size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from clients.epoch_trail import UNKNOWN_EPOCH, Divergence
from clients.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientError,
    CorruptFetch,
    KgroupError,
    LogTruncated,
    MessageSizeTooLarge,
    OffsetOutOfRange,
)
from clients.fetching import FetchedPartition, fetch_once
from clients.high_level.config import StreamsConfig
from clients.high_level.metrics import Meters
from clients.high_level.streams import Chunk, PartitionFeed
from clients.offset_requests import list_offsets_request, listed_offsets
from clients.transport.connection import Connection
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode
from protocol.frozen import frozen
from protocol.java_hash import abs31, java_string_hash, wrap32
from protocol.special_values import EARLIEST_TIME, LATEST_TIME
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

RESET_TIMES = {"smallest": EARLIEST_TIME, "largest": LATEST_TIME}

QUOTA = "a quota holds this client back"

SILENCE_S = 5.0
"""What passes sooner is not worth a warning: an election, a broker that is started again. A broker
that cannot be read from for longer, and is still named as leader, is."""

PATIENCE_S = 1.0
"""Time for a response beside `fetch.wait.max.ms`; then leaders are looked up while it is waited
for, and again after as long."""

Feeds = Iterable[PartitionFeed]


def fetcher_id(partition: TopicPartition, num_fetchers: int) -> int:
    """Return the id of the leader's fetcher that reads a partition, by Kafka's rule."""
    return (
        abs31(wrap32(31 * java_string_hash(partition.topic) + partition.partition)) % num_fetchers
    )


@frozen
class _Asked:
    """It has what was asked about a partition.

    `leader_epoch` is that of the leader as we know it, `last_epoch` that of the record before
    `offset`; -1: it is not told. With `suspected` the question is what the log has there, below
    `offset`.
    """

    feed: PartitionFeed
    offset: int
    leader_epoch: int
    last_epoch: int
    suspected: Divergence | None = None

    @classmethod
    def about(cls, feed: PartitionFeed, offset: int) -> _Asked:
        """Ask for what follows `offset`, or follow up a suspicion."""
        last_epoch = UNKNOWN_EPOCH if feed.suspected else feed.epoch_to_tell(offset)
        return cls(feed, offset, feed.leader_epoch, last_epoch, feed.suspected)

    @property
    def begin(self) -> int:
        """The offset from which on something is asked for."""
        return self.offset if self.suspected is None else self.suspected.end_offset

    @property
    def is_of_older(self) -> bool:
        """Return whether there was a leader of a later epoch than this one has confirmed."""
        return 0 <= self.leader_epoch < max(self.last_epoch, self.feed.youngest_epoch)


@attrs.define(eq=False)
class Silence:
    """The time since when something cannot be read, and what was logged about it."""

    since_s: float
    _is_logged: bool = False
    _is_warned: bool = False

    @property
    def is_warned(self) -> bool:
        """True if it had a warning, so that its end is news too."""
        return self._is_warned

    def level(self, now_s: float) -> int:
        """Return the level for another failure: INFO at first, WARNING once when it has lasted."""
        if not self._is_logged:
            self._is_logged = True
            return logging.INFO

        if self._is_warned or now_s - self.since_s < SILENCE_S:
            return logging.DEBUG

        self._is_warned = True
        return logging.WARNING


@attrs.define(eq=False)
class BrokerFetcher:
    """Reads partitions from one broker over one connection. It ends without partitions.

    `silences` has the brokers that cannot be read from, by id, and the topics, by name.
    `look_again` has leaders looked up: one that has moved takes its feeds away, however long this
    broker is waited for. `placed` is called when the end of a log has become a place to begin at.
    """

    config: StreamsConfig
    broker_id: int
    connect: Callable[[], Awaitable[Connection]]
    give_back: Callable[[Feeds], None]
    meters: Meters
    silences: dict[int | str, Silence] = attrs.field(factory=dict)
    look_again: Callable[[], None] = lambda: None
    placed: Callable[[], None] = lambda: None
    feeds: list[PartitionFeed] = attrs.field(factory=list)
    wake: asyncio.Event = attrs.field(factory=asyncio.Event)
    _connection: Connection | None = None

    def add(self, feed: PartitionFeed) -> None:
        """Fetch a partition too. Its former fetcher drops it."""
        # Another leader may have another log.
        feed.suspected = None
        feed.leader = self.broker_id
        self.feeds.append(feed)
        self.wake.set()

    async def run(self) -> None:
        """Fetch until every feed is closed, given back, or fetched from another broker."""
        while True:
            self.wake.clear()

            # A feed may have moved to another fetcher, or have come back and stand here twice.
            self.feeds = [feed for feed in dict.fromkeys(self.feeds) if self._is_ours(feed)]

            if not self.feeds:
                return

            ready = [feed for feed in self.feeds if self._is_ready(feed)]
            if not ready:
                # Room in a stream, a new feed and a closed one all wake the loop.
                await self.wake.wait()
                continue

            try:
                with self._looking_meanwhile(ready):
                    await self._serve(ready)
            except (ClientError, ApiError) as error:
                self._note_silence(self.feeds, str(error))
                # A refused login will not pass: the application has to know.
                if isinstance(error, AuthenticationFailed):
                    for feed in self.feeds:
                        feed.stream.end(error)
                # The broker may be gone: look up the leaders of all its partitions.
                self._drop(self.feeds)

            # Brokers fill a response in the order of the request, so rotate.
            self.feeds = self.feeds[1:] + self.feeds[:1]

    def _is_ours(self, feed: PartitionFeed) -> bool:
        return feed.live and feed.leader == self.broker_id

    def _is_ready(self, feed: PartitionFeed) -> bool:
        """Return whether to include a feed. A reset needs no room: later records count at once."""
        if feed.is_paused:
            return False
        due = feed.fetch_offset is None and self.config.auto_offset_reset != "none"
        return due or feed.stream.has_room

    def _note_silence(self, feeds: Feeds, reason: str) -> None:
        """Keep and log why the broker cannot be read from."""
        for feed in feeds:
            feed.trouble = reason
        now = asyncio.get_running_loop().time()
        level = self.silences.setdefault(self.broker_id, Silence(now)).level(now)
        text = "broker %d: fetching stops until leaders are looked up again: %s"
        logger.log(level, text, self.broker_id, reason)

    def _note_response(self, key: int | str) -> None:
        """Note that a broker or a topic can be read: its next failure is a new silence."""
        silence = self.silences.pop(key, None)
        if silence is not None and silence.is_warned:
            name = f"broker {key}" if isinstance(key, int) else key
            logger.warning("%s: fetching goes on", name)

    @contextmanager
    def _looking_meanwhile(self, asked: Sequence[PartitionFeed]) -> Iterator[None]:
        """Have leaders looked up while the block takes too long: a stopped broker is silent."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer
            self.look_again()
            # A broker that makes us wait for a quota has responded, and reads nothing meanwhile.
            connection = self._connection
            if connection is None or loop.time() >= connection.throttled_until_s + PATIENCE_S:
                self._note_silence(filter(self._is_ours, asked), "no response")
            timer = loop.call_later(PATIENCE_S, look)

        timer = loop.call_later(self.config.fetch_wait_max_ms / 1000 + PATIENCE_S, look)
        try:
            yield
        finally:
            timer.cancel()

    async def _serve(self, ready: list[PartitionFeed]) -> None:
        connection = self._connection = await self.connect()

        # Resets first: they give their feeds an offset to fetch from.
        if lost := [feed for feed in ready if feed.fetch_offset is None]:
            await self._reset(connection, lost)

        if suspicious := [feed for feed in ready if feed.is_suspected_from_start]:
            await self._find_starts(connection, suspicious)

        # Look again: feeds may have moved, and streams filled, during the reset.
        fetchable = {
            feed.partition: _Asked.about(feed, feed.fetch_offset)
            for feed in ready
            if self._is_ours(feed) and feed.fetch_offset is not None and feed.stream.has_room
        }
        if not fetchable:
            return

        size = self.config.fetch_message_max_bytes
        fetched = await fetch_once(
            connection,
            {
                partition: (asked.begin, asked.feed.fetch_bytes or size)
                for partition, asked in fetchable.items()
            },
            max_wait_ms=self.config.fetch_wait_max_ms,
            min_bytes=self.config.fetch_min_bytes,
            max_bytes=self.config.fetch_max_bytes,
            isolation=self.config.isolation,
            # Another may have led meanwhile, and changed the log (fault strangers-63, was: {}).
            leader_epochs={partition: asked.leader_epoch for partition, asked in fetchable.items()},
            last_epochs={partition: asked.last_epoch for partition, asked in fetchable.items()},
        )

        self._note_response(self.broker_id)
        self.meters.requests[self.broker_id].mark()

        # A feed may have moved while the request was in flight.
        for partition, asked in fetchable.items():
            if self._is_ours(asked.feed) and asked.feed.fetch_offset == asked.offset:
                self._take(asked, fetched[partition])
        self._note_quota(connection, [asked.feed for asked in fetchable.values()], fetched)

    def _note_quota(
        self,
        connection: Connection,
        asked: Feeds,
        fetched: Mapping[TopicPartition, FetchedPartition],
    ) -> None:
        """Keep and log that a quota lets nothing come, as one below the size of a batch does."""
        now_s = asyncio.get_running_loop().time()
        if connection.throttled_until_s <= now_s or any(part.rows for part in fetched.values()):
            self.silences.pop(QUOTA, None)
            return

        for feed in filter(self._is_ours, asked):
            # Who waits for messages is told why there are none (fault strangers-33).
            feed.trouble = QUOTA
        silence = self.silences.setdefault(QUOTA, Silence(now_s))
        # One response without anything is usual: the next one has something.
        if silence.level(now_s) >= logging.WARNING:
            logger.warning("broker %d: nothing comes: %s", self.broker_id, QUOTA)

    def _take(self, asked: _Asked, fetched: FetchedPartition) -> None:
        feed, offset = asked.feed, asked.offset
        if feed.trouble is not None and not fetched.error:
            self._note_response(feed.partition.topic)
        feed.trouble = None

        match fetched.error:
            case ErrorCode.NONE if asked.suspected is not None:
                self._judge(feed, offset, asked.suspected, fetched)
            case ErrorCode.NONE if fetched.divergence is not None:
                # Or the records that took these offsets are never read (fault strangers-45).
                self._note_divergence(feed, offset, fetched.divergence)
            case ErrorCode.NONE:
                # Back to the usual size behind a large message.
                feed.fetch_bytes = None
                feed.is_doubted = feed.is_believed = False
                self._pass_on(feed, offset, fetched)
            case ErrorCode.CORRUPT_MESSAGE | ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                # Rows before the corrupt batch are delivered, then the stream raises.
                corrupt = CorruptFetch(feed.partition, fetched.next_offset, fetched.detail)
                self._pass_on(feed, offset, fetched, corrupt)
            case ErrorCode.INVALID_FETCH_SIZE:
                # A broker before KIP-74 has sent a part of the message only.
                self._ask_for_more(feed, offset)
            case ErrorCode.OFFSET_OUT_OF_RANGE if asked.is_of_older and not feed.is_believed:
                self._note_error(feed, fetched.error)
                feed.is_doubted = True
                # It may be cut off, and not know of others (fault strangers-65).
                self._drop([feed])
            case ErrorCode.OFFSET_OUT_OF_RANGE if asked.suspected is not None:
                # The log begins behind it by now (fault strangers-85, was: None).
                feed.suspected = Divergence(asked.suspected.epoch, EARLIEST_TIME)
            case ErrorCode.OFFSET_OUT_OF_RANGE if asked.last_epoch >= 0:
                # A log may know nothing of the epoch, and have the offset.
                feed.epochs.clear()
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                reset = self.config.auto_offset_reset
                text = "%s: offset %d is out of range; auto.offset.reset=%s decides what follows"
                logger.warning(text, feed.partition, offset, reset)
                if reset == "none":
                    self._raise(feed, OffsetOutOfRange(feed.partition, offset))
                else:
                    feed.lose_place(offset)
            case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._refuse(feed)
            case error:
                # Mostly another broker leads the partition.
                self._note_error(feed, error)
                self._drop([feed])

    def _note_divergence(self, feed: PartitionFeed, offset: int, divergence: Divergence) -> None:
        """Go back to where the log and what was read of it part, or look first whether they do."""
        place = feed.epochs.find_place(divergence)
        if divergence.end_offset < offset:
            self._part(feed, offset, place)
        else:
            # Compaction may have taken all of an epoch.
            feed.suspected = place

    def _judge(
        self, feed: PartitionFeed, offset: int, suspected: Divergence, fetched: FetchedPartition
    ) -> None:
        """Go back if the log has anything where records of an epoch that it lacks were read."""
        if not fetched.leader_epochs:
            return
        feed.suspected = None
        first, _ = fetched.leader_epochs[0]
        # A log that lost an epoch to compaction has nothing there (fault strangers-76, was: True).
        has_others = first < offset
        if has_others:
            self._part(feed, offset, suspected)
        else:
            feed.epochs.part(Divergence(suspected.epoch, offset))

    def _part(self, feed: PartitionFeed, offset: int, place: Divergence) -> None:
        """Go on where the log and what was read of it part, as Kafka's consumers do (KIP-320)."""
        if self.config.auto_offset_reset == "none":
            self._raise(feed, LogTruncated(feed.partition, offset, place.end_offset))
        else:
            text = "%s: what was read from offset %d to %d is lost, and the log has others there: "
            logger.warning(text + "they are read", feed.partition, place.end_offset, offset)
            feed.part(offset, place)

    def _note_error(self, feed: PartitionFeed, error: ErrorCode) -> None:
        """Keep and log why a partition cannot be read: one line for all of its topic."""
        feed.trouble = error.name
        now = asyncio.get_running_loop().time()
        level = self.silences.setdefault(feed.partition.topic, Silence(now)).level(now)
        logger.log(level, "%s: fetching stops: %s", feed.partition, error.name)

    def _refuse(self, feed: PartitionFeed) -> None:
        """Raise that we may not read a partition, as Kafka's consumers do."""
        error = BrokerError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED, feed.partition.topic, ApiKey.FETCH
        )
        feed.trouble = str(error)
        # Whoever waits for its messages would do so without an end (fault strangers-180).
        self._raise(feed, error)

    def _pass_on(
        self,
        feed: PartitionFeed,
        offset: int,
        fetched: FetchedPartition,
        failure: KgroupError | None = None,
    ) -> None:
        """Queue the rows, and only then move on, so that nothing is lost in between."""
        # A response without progress needs no chunk.
        if fetched.next_offset > offset:
            rows = fetched.rows
            kind = fetched.timestamp_type
            epochs = fetched.leader_epochs
            chunk = Chunk(feed, offset, fetched.next_offset, rows, kind, leader_epochs=epochs)
            feed.stream.put(chunk)
            feed.epochs.note(epochs)
            feed.fetch_offset = fetched.next_offset
            self.meters.count_fetched(feed.partition.topic, len(rows), fetched.size_bytes)
            self.meters.broker_bytes[self.broker_id].mark(fetched.size_bytes)

        end_offset = fetched.end_offset(self.config.isolation)
        if end_offset >= 0:  # a new leader may not know it yet
            feed.end_offset = end_offset

        if failure:
            self._raise(feed, failure)

    def _ask_for_more(self, feed: PartitionFeed, offset: int) -> None:
        """Double the fetch size, up to a bound. A larger message is an error of the stream."""
        asked_for = feed.fetch_bytes or self.config.fetch_message_max_bytes
        if asked_for < self.config.largest_fetch_bytes:
            feed.fetch_bytes = min(asked_for * 2, self.config.largest_fetch_bytes)
        else:
            self._raise(feed, MessageSizeTooLarge(feed.partition, offset, asked_for))

    def _raise(self, feed: PartitionFeed, failure: KgroupError) -> None:
        """Raise the failure from the stream, after its queued messages.

        The partition is fetched again after a pause, and the failure raised again, never skipped.
        """
        feed.fail(failure)
        self._drop([feed])

    async def _reset(self, connection: Connection, feeds: list[PartitionFeed]) -> None:
        """Find the offsets to which auto.offset.reset leads."""
        # No offset is committed, and none may be chosen.
        if self.config.auto_offset_reset == "none":
            for feed in feeds:
                self._raise(feed, OffsetOutOfRange(feed.partition, None))
            return

        # Ask the leader.
        time = RESET_TIMES[self.config.auto_offset_reset]
        times = {feed.partition: time for feed in feeds}
        request = list_offsets_request(times, isolation=self.config.isolation)
        responses = listed_offsets(await connection.call(request))

        # Feeds may have moved during the request.
        for feed in filter(self._is_ours, feeds):
            response = responses.get(feed.partition)
            code = ErrorCode.of(response.error_code) if response else ErrorCode.UNKNOWN_SERVER_ERROR
            if response is None or code is not ErrorCode.NONE:
                self._note_error(feed, code)
                self._drop([feed])
                continue

            # Who was told that a place is lost is told where it goes on.
            logger.log(
                logging.INFO if feed.lost_offset is None else logging.WARNING,
                "%s: reset to %s offset %d",
                feed.partition,
                self.config.auto_offset_reset,
                response.offset,
            )
            feed.reset(response.offset)
            if time == LATEST_TIME:
                # What comes until the next commit would be lost with us (fault strangers-27).
                self.placed()

    async def _find_starts(self, connection: Connection, feeds: list[PartitionFeed]) -> None:
        """Find where logs begin that may have others than what was read."""
        times = {feed.partition: EARLIEST_TIME for feed in feeds}
        responses = listed_offsets(await connection.call(list_offsets_request(times)))
        for feed in filter(self._is_ours, feeds):
            response = responses.get(feed.partition)
            if response is None or response.error_code or feed.suspected is None:
                self._drop([feed])
            else:
                feed.suspected = Divergence(feed.suspected.epoch, response.offset)

    def give_up(self) -> None:
        """Give all partitions back to the leader finder."""
        self._drop(self.feeds)

    def _drop(self, feeds: Feeds) -> None:
        # A feed that moved has its leader already. `run` leaves out what is not ours.
        leaderless = [feed for feed in feeds if self._is_ours(feed)]
        for feed in leaderless:
            feed.leader = None
        self.give_back(leaderless)


@attrs.define(eq=False)
class Fetchers:
    """The fetchers of one connector. `spawn` starts a loop in the connector's task group."""

    config: StreamsConfig
    connect: Callable[[int, int], Awaitable[Connection]]
    give_back: Callable[[Feeds], None]
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    meters: Meters
    look_again: Callable[[], None] = lambda: None
    placed: Callable[[], None] = lambda: None
    _silences: dict[int | str, Silence] = attrs.field(factory=dict)
    _running: dict[tuple[int, int], BrokerFetcher] = attrs.field(factory=dict)
    """By broker id and fetcher id."""

    def add(self, broker_id: int, feed: PartitionFeed) -> None:
        """Fetch a partition from its leader, and from no other broker."""
        key = broker_id, fetcher_id(feed.partition, self.config.num_consumer_fetchers)
        if (fetcher := self._running.get(key)) is None:
            fetcher = self._running[key] = BrokerFetcher(
                self.config,
                broker_id,
                lambda: self.connect(*key),
                self.give_back,
                self.meters,
                self._silences,
                self.look_again,
                self.placed,
            )
            self.spawn(self._run(key, fetcher))
        fetcher.add(feed)

    def wake(self) -> None:
        """Look for work: a stream has room again, or a feed was closed."""
        for fetcher in self._running.values():
            fetcher.wake.set()

    async def _run(self, key: tuple[int, int], fetcher: BrokerFetcher) -> None:
        """Run a fetcher. An unexpected error ends only this loop."""
        try:
            await fetcher.run()
        except Exception:
            logger.exception("fetcher %d of broker %d failed", key[1], key[0])
            # Its partitions must not stay without a fetcher.
            fetcher.give_up()
        finally:
            del self._running[key]
