"""Streams of messages, and what ties a message to the offset that is committed for it.

A *feed* is one partition on its way to one stream, for as long as one consumer thread owns it. When
ownership ends, or moves to another thread, the feed is closed for good and nothing it carried
counts any more: neither a chunk that was still queued nor one that is half read. A partition that
comes back gets a new feed. So the feed is the stamp that tells a stale chunk from a live one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from clients.serializers import Decoder
from protocol.records.batch import Record
from protocol.topic_partition import TopicPartition

MESSAGES_PER_TURN = 128
"""After so many messages a stream lets the event loop turn, so that an application that never
awaits anything else cannot keep its own member from rebalancing."""


class ConsumerTimeout(Exception):
    """No message for consumer.timeout.ms. The stream can be iterated again."""


class MessageAndMetadata:
    """A message. `key` and `value` are decoded on each access, and raise what the decoder raises;
    that does not move the stream."""

    __slots__ = ("_decoders", "_partition", "_record", "timestamp_type")

    def __init__(
        self,
        record: Record,
        partition: TopicPartition,
        decoders: tuple[Decoder, Decoder],
        timestamp_type: int = 0,
    ) -> None:
        self._record = record
        self._partition = partition
        self._decoders = decoders
        self.timestamp_type = timestamp_type
        """0 the producer's clock (CreateTime), 1 the broker's (LogAppendTime)."""

    @property
    def topic(self) -> str:
        """Where the message is from."""
        return self._partition.topic

    @property
    def partition(self) -> int:
        """The number of the partition within its topic."""
        return self._partition.partition

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self._record.offset

    @property
    def timestamp_ms(self) -> int:
        """Since the epoch; -1 if the message has none."""
        return self._record.timestamp_ms

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """In the order the producer gave them."""
        return self._record.headers

    @property
    def key(self) -> Any:
        """The key, decoded now."""
        return self._decoders[0](self._record.key)

    @property
    def value(self) -> Any:
        """The value, decoded now."""
        return self._decoders[1](self._record.value)

    def __repr__(self) -> str:
        return f"MessageAndMetadata({self._partition} @ {self.offset})"


@attrs.define(eq=False)
class PartitionFeed:
    """`position`: the next offset to consume, None until it is known. `fetch_offset`: the next to
    fetch, None until auto.offset.reset has been asked for it."""

    partition: TopicPartition
    stream: MessageStream
    position: int | None
    fetch_offset: int | None = attrs.field(
        default=attrs.Factory(lambda self: self.position, takes_self=True)
    )
    live: bool = True

    def close(self) -> None:
        """From now on nothing this feed carries is delivered or counted; `position` stays."""
        self.live = False
        self.stream.drop(self)


@attrs.define(eq=False)
class Chunk:
    """What one fetch brought of one partition: the records of [start, next_offset).

    Without records it moves the position all the same: past what compaction or a transaction's
    marker left empty, or to where a reset leads. `error` is raised behind the records.
    """

    feed: PartitionFeed
    start: int
    next_offset: int
    records: list[Record] = attrs.field(factory=list)
    timestamp_type: int = 0
    error: Exception | None = None


class MessageStream:
    """An endless async iterator of messages; it ends when its connector shuts down.

    Delivery is at least once: a message counts as consumed when the *next* one is asked for, that
    is, when the body of `async for` is through with it. A commit made inside the body does not
    cover the message being processed, and neither does one after a `break`. One task at a time may
    iterate a stream.
    """

    def __init__(
        self,
        key_decoder: Decoder,
        value_decoder: Decoder,
        *,
        max_chunks: int = 2,
        timeout_ms: int = -1,
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._decoders = (key_decoder, value_decoder)
        self._max_chunks = max_chunks
        self._timeout_s = timeout_ms / 1000
        self._on_room = on_room
        self._chunks: deque[Chunk] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None
        self._paused = False
        # The chunk being read: its feed, the rest of this turn's records, where the next turn
        # begins, and the position once the message handed out last has been consumed.
        self._chunk: Chunk | None = None
        self._feed: PartitionFeed | None = None
        self._turn: Iterator[Record] = iter(())
        self._index = 0
        self._following = 0
        self._timestamp_type = 0

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> MessageAndMetadata:
        """Raises ConsumerTimeout; ClientError for a corrupt batch; StopAsyncIteration."""
        feed = self._feed
        if feed is not None and feed.live:
            feed.position = self._following
            if not self._paused:
                for record in self._turn:
                    self._following = record.offset + 1
                    return MessageAndMetadata(
                        record, feed.partition, self._decoders, self._timestamp_type
                    )
        return await self._next_turn()

    # --- for the connector --------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether fetching for this stream makes sense: fewer than max_chunks are waiting."""
        return len(self._chunks) < self._max_chunks

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk. What one fetch brought is always taken, whatever `has_room` says."""
        self._chunks.append(chunk)
        self._changed.set()

    def drop(self, feed: PartitionFeed) -> None:
        """Forget the chunks of a feed."""
        self._chunks = deque(chunk for chunk in self._chunks if chunk.feed is not feed)
        self._on_room()

    def pause(self) -> None:
        """Hand out nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Go on."""
        self._paused = False
        self._changed.set()

    def end(self, failure: Exception | None = None) -> None:
        """Hand out nothing more: the iteration ends, or raises `failure`."""
        self._ended = True
        self._failure = failure
        self._paused = True
        self._changed.set()

    # --- from turn to turn --------------------------------------------------------------------

    async def _next_turn(self) -> MessageAndMetadata:
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s if self._timeout_s >= 0 else None
        while True:
            self._changed.clear()
            if self._ended:
                raise self._failure or StopAsyncIteration
            if not self._paused and self._take_turn():
                return await self.__anext__()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                raise ConsumerTimeout(f"no message for {self._timeout_s * 1000:.0f} ms") from None

    def _take_turn(self) -> bool:
        """Set `_turn` to records that may be handed out now. False: there are none yet."""
        while True:
            chunk = self._chunk
            if chunk is None or not chunk.feed.live:
                if not self._open_chunk():
                    return False
            elif self._index < len(chunk.records):
                end = self._index + MESSAGES_PER_TURN
                self._turn = iter(chunk.records[self._index : end])
                self._index = end
                return True
            else:
                self._close_chunk(chunk)

    def _open_chunk(self) -> bool:
        self._chunk = self._feed = None
        if not self._chunks:
            return False
        self._chunk = chunk = self._chunks.popleft()
        self._feed, self._index, self._following = chunk.feed, 0, chunk.start
        self._timestamp_type = chunk.timestamp_type
        self._on_room()
        return True

    def _close_chunk(self, chunk: Chunk) -> None:
        chunk.feed.position = chunk.next_offset
        self._chunk = self._feed = None
        if chunk.error:
            raise chunk.error
