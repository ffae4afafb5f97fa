"""Streams of messages, and the link from a message to the offset that is committed for it.

A *feed* is one partition on its way to one stream, for as long as one consumer thread owns it. When
ownership ends, or moves to another thread, the feed is closed for good, and nothing that it carried
counts any longer: neither a queued chunk nor one that is half read. A partition that comes back
gets a new feed. So the feed tells a stale chunk from a live one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import length_hint
from typing import Any, ClassVar

import attrs

from clients.epoch_trail import UNKNOWN_EPOCH, Divergence, EpochTrail
from clients.errors import ConsumerTimeout, KgroupError, StreamInUse
from clients.high_level.chunk_queue import ChunkQueue
from clients.own_loop import OwnLoop
from clients.serializers import Decoder, bytes_decoder
from protocol.frozen import frozen
from protocol.records.record_run import Row
from protocol.special_values import EARLIEST_TIME
from protocol.stalls import PUT_OFF_S, STALL_S
from protocol.topic_partition import TopicPartition

TURN_S = 0.005
"""Time between two turns that a stream leaves to the event loop. Without them an application that
awaits nothing else would keep its own member from rebalancing, committing and pausing."""

MAX_BATCH = 500
"""Most messages in a list, as in Kafka's max.poll.records. Longer lists take twice the time a
message: the garbage collector looks at all that are alive.
"""

LOOK_EVERY = 32
"""Most messages between two looks at the clock; a turn begins with looks after 1, 3, 7 and 15. So
an application that suddenly becomes slow holds the loop for this many messages once, and for one
message at a time after that."""

LEASE_CHECK_S = 0.05


class MessageAndMetadata:
    """A message. `key` and `value` are decoded once, at the first access.

    An access raises the errors of the decoder, and does not move the stream. The common properties
    of a partition's messages are in a class of their own (`of_partition`), so that a message costs
    next to nothing.
    """

    __slots__ = ("_key", "_row", "_value")

    _row: Row
    topic_partition: ClassVar[TopicPartition]
    topic: ClassVar[str]
    partition: ClassVar[int]
    timestamp_type: ClassVar[int]
    """0 the producer's clock (CreateTime), 1 the broker's (LogAppendTime)."""
    _decoders: ClassVar[tuple[Decoder, Decoder]]

    @classmethod
    def of_partition(
        cls, partition: TopicPartition, decoders: tuple[Decoder, Decoder], timestamp_type: int
    ) -> type[MessageAndMetadata]:
        """Make the class of one partition's messages."""
        common = {
            "__slots__": (),
            "topic_partition": partition,
            "topic": partition.topic,
            "partition": partition.partition,
            "timestamp_type": timestamp_type,
            "_decoders": decoders,
        }

        if decoders[0] is bytes_decoder:  # no decoding: read the row directly
            common["key"] = property(_raw_key)
        if decoders[1] is bytes_decoder:
            common["value"] = property(_raw_value)
        return type(cls.__name__, (cls,), common)

    @property
    def offset(self) -> int:
        """Offset of the message in the partition."""
        return self._row[0]

    @property
    def timestamp_ms(self) -> int:
        """Timestamp in ms since the epoch; -1 if the message has none."""
        return self._row[1]

    @property
    def key(self) -> Any:
        """The decoded key."""
        if not hasattr(self, "_key"):
            self._key: Any = self._decoders[0](self._row[2])
        return self._key

    @property
    def value(self) -> Any:
        """The decoded value."""
        if not hasattr(self, "_value"):
            self._value: Any = self._decoders[1](self._row[3])
        return self._value

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers in the producer's order."""
        return self._row[4]

    def __repr__(self) -> str:
        return f"MessageAndMetadata({self.topic}-{self.partition} @ {self.offset})"


def _raw_key(message: MessageAndMetadata) -> bytes | None:
    return message._row[2]


def _raw_value(message: MessageAndMetadata) -> bytes | None:
    return message._row[3]


def _messages(
    kind: type[MessageAndMetadata],
    rows: Iterator[Row],
    now: Callable[[], float],
    turn_ends: float,
) -> Iterator[MessageAndMetadata]:
    """Make messages of rows, each one on request, until the turn is over."""
    # Without a call of `__init__`, a message costs little more than its row.
    new = object.__new__
    stretch = 1

    while length_hint(rows) and now() < turn_ends:
        for row in islice(rows, stretch):
            message = new(kind)
            message._row = row
            yield message

        # Longer stretches while the application is fast: looking at the clock costs time.
        stretch = min(stretch * 2, LOOK_EVERY)


def _batch_of(kind: type[MessageAndMetadata], rows: Iterator[Row]) -> list[MessageAndMetadata]:
    """Make messages of all rows."""
    new = object.__new__
    messages = []

    for row in rows:
        message = new(kind)
        message._row = row
        messages.append(message)
    return messages


@frozen
class Reset:
    """A reset by auto.offset.reset to `offset`. `lost` was out of range; None: there was none."""

    lost: int | None
    offset: int
    divergence: Divergence | None = None

    def position_after(self, position: int | None) -> int:
        """Return the position that counts while messages from before the reset are still queued.

        If the log begins behind `lost`, it holds none of these messages. At their position the next
        owner of the partition would find no message, and reset again, to a later end of the log. If
        the log ends before `lost`, it was truncated, and the messages that it still holds must not
        be skipped.
        """
        if position is None or self.lost is None or self.lost < self.offset:
            return self.offset

        return min(position, self.offset)


@attrs.define(eq=False)
class PartitionFeed:
    """The state of a partition that a stream consumes.

    `fetch_offset` is the next offset to fetch; None until auto.offset.reset has given it.
    `committed` is the committed offset as far as we know; None if the group may go back.
    """

    partition: TopicPartition
    stream: MessageStream
    _position: int | None
    fetch_offset: int | None = attrs.field(
        default=attrs.Factory(lambda self: self._position, takes_self=True)
    )
    committed: int | None = attrs.field(
        default=attrs.Factory(lambda self: self._position, takes_self=True)
    )
    start_position: int | None = attrs.field(
        default=attrs.Factory(lambda self: self._position, takes_self=True)
    )
    """The position to which no consumed message has led: the first one, or that of a reset. None
    after a reset before which messages were consumed and not committed."""
    fetch_bytes: int | None = None
    """Fetch size in place of fetch.message.max.bytes, after a message that did not fit."""
    end_offset: int = -1
    """End of what can be read, as the last response has it; -1: not known."""
    leader: int | None = None
    """Id of the broker from which the partition is fetched."""
    trouble: str | None = None
    """Why it cannot be read now."""
    live: bool = True
    is_paused: bool = False
    """True while the application wants no messages of the partition."""
    rewinds: int = 0
    """Number of times that the group was allowed to go back."""
    lost_offset: int | None = None
    """The offset at which the log had nothing, if that led to a reset."""
    leader_epoch: int = UNKNOWN_EPOCH
    """The leader's, as metadata have it."""
    youngest_epoch: int = UNKNOWN_EPOCH
    """The highest that metadata have had: a leader of another may be cut off."""
    is_doubted: bool = False
    """True while only a leader is known that is older than another was."""
    is_believed: bool = False
    """True if no broker knows of a younger one."""
    suspected: Divergence | None = None
    """The place from which on the log may have others than what was read."""
    epochs: EpochTrail = attrs.field(factory=EpochTrail)
    """The leader epochs of what was fetched, and of the record before the first offset."""
    opened: EpochTrail = attrs.field(factory=EpochTrail)
    """The same of what the stream has come to, up to `opened_end`: it may be lost meanwhile."""
    opened_end: int | None = attrs.field(
        default=attrs.Factory(lambda self: self._position, takes_self=True)
    )
    _resets: deque[Reset] = attrs.field(factory=deque)
    """Resets that the stream has not reached, one for each of its chunks that stand for one."""

    @property
    def position(self) -> int | None:
        """The next offset to consume; None until it is known.

        A reset counts at once, as in Kafka: records produced after it are for the group to consume,
        whoever owns the partition then.
        """
        self.stream.settle(self)
        position = self._position
        for reset in self._resets:
            position = reset.position_after(position)
        return position

    @position.setter
    def position(self, offset: int | None) -> None:
        self._position = offset

    @property
    def has_uncommitted(self) -> bool:
        """Return whether messages were consumed that, as far as we know, are not committed."""
        position = self.position
        return position is not None and position not in (self.committed, self.start_position)

    @property
    def is_suspected_from_start(self) -> bool:
        """Return whether the log may have others from its start on, wherever that is."""
        return self.suspected is not None and self.suspected.end_offset == EARLIEST_TIME

    def note_leader(self, epoch: int) -> None:
        """Note the epoch of the leader, as metadata have it."""
        self.leader_epoch = epoch
        # What is read may carry none (fault strangers-82, was: UNKNOWN_EPOCH).
        self.youngest_epoch = max(self.youngest_epoch, epoch)

    def know_epoch(self, offset: int, epoch: int) -> None:
        """Note the leader epoch of the record before the first offset."""
        self.epochs = EpochTrail.behind(offset, epoch)
        self.opened = EpochTrail.behind(offset, epoch)

    def epoch_to_tell(self, offset: int) -> int:
        """Return the epoch of the last record before an offset, if another leader may lack it."""
        epoch = self.epochs.before(offset)
        # The leader that wrote it has it: a log of it that ends sooner is of a topic that was made
        # again (fault strangers-60, was: epoch).
        return UNKNOWN_EPOCH if epoch == self.leader_epoch else epoch

    def epoch_before(self, offset: int) -> int:
        """Return the epoch of the last record before an offset that the stream has come to."""
        # What takes the offsets of lost records has another (fault strangers-59).
        is_opened = self.opened_end is not None and offset <= self.opened_end
        return self.opened.before(offset) if is_opened else UNKNOWN_EPOCH

    def fail(self, failure: KgroupError) -> None:
        """Have the stream raise a failure, after its queued messages."""
        at = self.fetch_offset
        self.stream.put(Chunk(self, at, at, error=failure))

    def open(self, chunk: Chunk) -> None:
        """Note that the stream has come to a chunk."""
        # The first row may be behind the start: compaction removes records.
        self.position = chunk.start
        if chunk.reset:
            self._pass_reset()
        else:
            self.opened.note(chunk.leader_epochs)
        self.opened_end = chunk.next_offset

    def lose_place(self, offset: int) -> None:
        """Ask auto.offset.reset for the next offset, since there is nothing at `offset`."""
        self.lost_offset = offset
        self.fetch_offset = None
        self.epochs.clear()
        self.is_doubted = self.is_believed = False
        self.youngest_epoch = self.leader_epoch

    def part(self, offset: int, divergence: Divergence) -> None:
        """Go back to where the log and what was read of it up to `offset` part."""
        self.epochs.part(divergence)
        self.lost_offset = offset
        self.reset(divergence.end_offset, divergence)

    def reset(self, offset: int, divergence: Divergence | None = None) -> None:
        """Go on at `offset`, which auto.offset.reset gave and which may be earlier."""
        if not self.live:
            return

        # A reset may lead back below what is committed.
        self.fetch_offset = offset
        had_uncommitted = self.has_uncommitted
        self._allow_to_go_back()

        # The chunk holds the reset's place behind the messages that are queued.
        self._resets.append(Reset(self.lost_offset, offset, divergence))
        self.start_position = None if had_uncommitted else self.position
        self.stream.put(Chunk(self, offset, offset, reset=True))

    def _pass_reset(self) -> None:
        """Count a reset that the stream has reached: messages queued before it are consumed."""
        had_uncommitted = self.has_uncommitted
        passed = self._resets.popleft()
        if passed.divergence is None:
            self.opened.clear()
        else:
            self.opened.part(passed.divergence)
        self._allow_to_go_back()  # the application may have committed earlier messages
        self.start_position = None if had_uncommitted else self.position

    def _allow_to_go_back(self) -> None:
        self.committed = None
        self.rewinds += 1

    def close(self) -> None:
        """Deliver and count nothing of this feed any more; `position` stays."""
        # Dropping settles the position, so the feed must still be live.
        self.stream.drop(self)
        self.live = False


@attrs.define(eq=False)
class Chunk:
    """The result of one fetch for one partition: the records of [start, next_offset), as rows.

    Without rows it still moves the position, past records that compaction removed and markers of
    transactions. With `reset` it stands for a reset of its feed, and `PartitionFeed.reset` made it.
    `error` is raised after the rows.
    """

    feed: PartitionFeed
    start: int | None
    next_offset: int | None
    rows: Sequence[Row] = ()
    timestamp_type: int = 0
    reset: bool = False
    error: Exception | None = None
    leader_epochs: Sequence[tuple[int, int]] = ()
    """As in FetchedPartition."""


class MessageStream:
    """An endless async iterator of messages, which ends when its connector shuts down.

    Delivery is at least once: a message counts as consumed when the *next* one is asked for, after
    the body of `async for`. A commit inside the body does not cover the message being processed,
    nor does one after a `break`. One task at a time may iterate a stream: StreamInUse is raised if
    a second one waits. `batches` iterates the same messages as lists.
    """

    def __init__(
        self,
        key_decoder: Decoder,
        value_decoder: Decoder,
        *,
        max_chunks: int = 2,
        timeout_ms: int = -1,
        on_room: Callable[[], None] = lambda: None,
        entitled: Callable[[], bool] = lambda: True,
        own_loop: OwnLoop | None = None,
    ) -> None:
        self._decoders = (key_decoder, value_decoder)
        self._max_chunks = max_chunks
        self._timeout_s = timeout_ms / 1000
        self._on_room = on_room
        self._entitled = entitled
        self._own_loop = own_loop or OwnLoop()

        # ---- chunks that wait, and what their reader waits for
        self._chunks = ChunkQueue()
        self._changed = asyncio.Event()
        self._ended = False
        self._failure: Exception | None = None
        self.on_asked: Callable[[MessageStream], None] | None = None
        """Called when the application asks for a message and none is at hand."""
        self._paused = False

        # The chunk being read, and its rows that are not messages yet. The position is computed
        # from these on request: handing out a message stores nothing.
        self._chunk: Chunk | None = None
        self._num_opened = 0  # tells this chunk from all before it
        self._rest: Iterator[Row] = iter(())
        self._asking = False  # true while the next message is awaited: the last one is consumed
        self._num_in_work = 1  # messages handed out at once: 1, or the length of a list

        # A paused feed whose messages the application still works on, and the offset behind them.
        self._in_hand: tuple[PartitionFeed, int] | None = None

        # Stands for the application's work if its chunk has been taken away meanwhile.
        self._outlasting_work: object | None = None

        # ---- the present turn
        self._in_use = False
        self._turn_ends = 0.0
        self.turn: Iterator[MessageAndMetadata] = iter(())
        """Messages that can be handed out without a wait. If it is empty, call `begin_turn`."""
        self._types: dict[tuple[TopicPartition, int], type[MessageAndMetadata]] = {}

    def __aiter__(self) -> MessageStream:
        return self

    async def __anext__(self) -> MessageAndMetadata:
        """Return the next message.

        Raises ConsumerTimeout, StreamInUse; ClientError for unreadable data, BrokerError for what
        may not be read; StopAsyncIteration.
        """
        # Most messages are at hand, and cost no wait.
        for message in self.turn:
            return message

        while await self.begin_turn():
            for message in self.turn:
                return message

        raise StopAsyncIteration

    def batches(self) -> MessageBatches:
        """Iterate over lists of up to MAX_BATCH messages of one partition and one fetch.

        A list counts as consumed, as a whole, when the next list or message is asked for.
        """
        return MessageBatches(self)

    async def next_batch(self) -> list[MessageAndMetadata] | None:
        """Return the next list; None if the stream has ended. Raises as `__anext__`."""
        if not await self.begin_turn():
            return None

        # The list takes the place of the turn.
        assert self._chunk is not None, "a turn has messages of a chunk"
        self.turn = iter(())
        batch = _batch_of(self._type_of(self._chunk), islice(self._rest, MAX_BATCH))
        self._num_in_work = len(batch)
        return batch

    # --- for the connector --------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Return whether to fetch for this stream: fewer than max_chunks are waiting.

        Those of paused feeds do not count, since the others must go on.
        """
        return self._chunks.num_ready < self._max_chunks

    @property
    def queue_size(self) -> int:
        """Number of waiting chunks."""
        return self._chunks.num_waiting

    def put(self, chunk: Chunk) -> None:
        """Queue a chunk, unless its feed was closed after the request.

        All chunks of a fetch are taken, also without `has_room`.
        """
        if chunk.feed.live:
            self._chunks.append(chunk)
            self._changed.set()

    def settle(self, feed: PartitionFeed) -> None:
        """Bring the position of `feed` up to the consumed messages."""
        chunk = self._chunk
        if chunk is None or chunk.feed is not feed or not feed.live:
            return

        handed_out = len(chunk.rows) - length_hint(self._rest)
        consumed = handed_out if self._asking else handed_out - self._num_in_work

        # The messages that the application works on do not count.
        if consumed > 0:
            feed.position = chunk.rows[consumed - 1][0] + 1

    @property
    def is_asked(self) -> bool:
        """Return whether the application waits for a message."""
        return self._asking

    def work_in_hand(self) -> object | None:
        """Return what stands for the message or list in work; None if there is none.

        May be called from another thread, which compares it with what it got before.
        """
        if self._asking or self._ended:
            return None

        # The rows first: if the chunk is taken away in between, there is no chunk.
        rest = self._rest
        chunk = self._chunk
        if chunk is None:
            return self._outlasting_work
        handed_out = len(chunk.rows) - length_hint(rest)
        return (self._num_opened, handed_out) if handed_out > 0 else None

    def next_offset(self, feed: PartitionFeed) -> int | None:
        """Return the offset of the feed's next message; None until a reset has given it."""
        # The open chunk, then those that wait, then what is not fetched yet.
        chunk = self._chunk
        if chunk is not None and chunk.feed is feed:
            handed_out = len(chunk.rows) - length_hint(self._rest)
            if handed_out < len(chunk.rows):
                return chunk.rows[handed_out][0]
        # Those of its own: a walk over all feeds', for each feed, takes seconds (fault scale-C5).
        for waiting in self._chunks.of(feed):
            if waiting.rows or waiting.reset:
                return waiting.rows[0][0] if waiting.rows else waiting.start
        return feed.fetch_offset

    def hold(self, feed: PartitionFeed) -> None:
        """Pause a feed: hand out no more of it; what is fetched of it stays."""
        self._chunks.pause(feed)
        # What is paused takes no room: fetchers may wait for it (fault outside-O19).
        self._on_room()
        chunk = self._chunk
        if chunk is None or chunk.feed is not feed:
            return

        self.settle(feed)
        self._outlasting_work = self.work_in_hand()
        rest = list(self._rest)
        handed_out = len(chunk.rows) - len(rest)
        start = chunk.start
        if handed_out:
            start = chunk.rows[handed_out - 1][0] + 1
            # It counts as consumed when the next one, of another partition, is asked for.
            if not self._asking:
                self._in_hand = feed, start

        # The rest goes back to where it was.
        held = Chunk(feed, start, chunk.next_offset, rest, chunk.timestamp_type, error=chunk.error)
        self._chunks.put_back(held)
        self._chunk = None
        self._rest = iter(())
        self.turn = iter(())

    def release(self, feed: PartitionFeed) -> None:
        """Hand out messages of a feed that was paused."""
        self._chunks.resume(feed)
        self._changed.set()

    def drop(self, feed: PartitionFeed) -> None:
        """Drop the chunks of a feed."""
        if self._in_hand is not None and self._in_hand[0] is feed:
            self._in_hand = None
        # What was handed out of the open chunk counts; the rest of it is dropped.
        if self._chunk and self._chunk.feed is feed:
            self.settle(feed)
            # Neither a rebalance nor a seek ends the application's work on its message.
            self._outlasting_work = self.work_in_hand()
            self._chunk = None
            self._rest = iter(())
            self.turn = iter(())

        self._chunks.drop(feed)
        self._on_room()

    def pause(self) -> None:
        """Hand out no messages until `resume`."""
        self._paused = True
        self.turn = iter(())

    def resume(self) -> None:
        """Hand out messages again."""
        self._paused = False
        self._changed.set()

    def end(self, failure: Exception | None = None) -> None:
        """Hand out no more messages: the iteration ends, or raises `failure`."""
        self._ended = True
        self._failure = failure
        self.turn = iter(())
        self._changed.set()

    # --- from turn to turn --------------------------------------------------------------------

    async def begin_turn(self) -> bool:
        """Wait for messages, and put them into `turn`; the last turn's messages are consumed.

        Returns False if the stream has ended. Raises as `__anext__`.
        """
        if self._in_use:
            raise StreamInUse("another task waits for the next message of this stream")

        # Asking for more consumes all that was handed out, even if it ends with an error.
        self._asking = self._in_use = True
        self._outlasting_work = None
        self._count_in_hand()
        if self.on_asked is not None:
            self.on_asked(self)
        try:
            return await self._find_turn()
        finally:
            self._in_use = False

    def _count_in_hand(self) -> None:
        """Count the messages of a paused feed as consumed: the application asks for more."""
        if self._in_hand is not None:
            feed, offset = self._in_hand
            feed.position = offset
            self._in_hand = None

    async def _find_turn(self) -> bool:
        self._own_loop.check()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s if self._timeout_s >= 0 else None

        # The turn is over: let the loop do what else there is.
        if loop.time() >= self._turn_ends:
            await asyncio.sleep(0)
            self._turn_ends = loop.time() + TURN_S

        while True:
            # Cleared before the look: any change after it ends the wait.
            self._changed.clear()
            if self._ended:
                if self._failure:
                    raise self._failure
                return False

            # The right to deliver is checked here and nowhere else.
            entitled = self._entitled()
            if entitled and not self._paused and self._take_turn(loop.time):
                self._asking = False
                self._num_in_work = 1
                return True

            # A lease that is renewed sets no event, so look again soon without one.
            await self._wait(deadline, None if entitled else loop.time() + LEASE_CHECK_S)
            # The wait was a turn for others.
            self._turn_ends = loop.time() + TURN_S

    async def _wait(self, deadline: float | None, look_again_at: float | None) -> None:
        next_look = min((at for at in (deadline, look_again_at) if at is not None), default=None)

        try:
            async with asyncio.timeout_at(next_look):
                await self._changed.wait()
        except TimeoutError:
            # Only the application's deadline is an error; the other only ends the wait.
            if next_look == deadline:
                # Messages may lie in the sockets of a process that stood still (fault groups-5).
                if await self._comes_late(deadline):
                    return
                raise ConsumerTimeout(f"no message for {self._timeout_s * 1000:.0f} ms") from None

    async def _comes_late(self, deadline: float | None) -> bool:
        """After a stall of the process, wait a moment more; return whether anything came."""
        late_s = 0.0 if deadline is None else asyncio.get_running_loop().time() - deadline
        if late_s <= STALL_S:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(PUT_OFF_S):
                await self._changed.wait()
        return self._changed.is_set()

    def _take_turn(self, now: Callable[[], float]) -> bool:
        """Set `turn` to messages that can be handed out now. Returns False if there are none."""
        while True:
            chunk = self._chunk
            if chunk is None:
                if not self._open_chunk():
                    return False
            elif not length_hint(self._rest):
                # All rows of the chunk are consumed.
                self._close_chunk(chunk)
            else:
                self.turn = _messages(self._type_of(chunk), self._rest, now, self._turn_ends)
                return True

    def _type_of(self, chunk: Chunk) -> type[MessageAndMetadata]:
        key = chunk.feed.partition, chunk.timestamp_type
        message_type = self._types.get(key)
        if message_type is None:
            message_type = MessageAndMetadata.of_partition(key[0], self._decoders, key[1])
            self._types[key] = message_type
        return message_type

    def _open_chunk(self) -> bool:
        chunk = self._chunks.take()
        if chunk is None:
            return False

        self._chunk = chunk
        self._num_opened += 1
        self._rest = iter(chunk.rows)
        chunk.feed.open(chunk)

        # Each call has all fetchers look at all their partitions (fault outside-O19).
        if not self.has_room:
            return True
        self._on_room()
        return True

    def _close_chunk(self, chunk: Chunk) -> None:
        self._chunk = None
        # Behind the rows there may be removed records, and markers of transactions.
        chunk.feed.position = chunk.next_offset
        if chunk.error:
            raise chunk.error


class MessageBatches:
    """The messages of a stream, as an endless async iterator of lists.

    An error, as ConsumerTimeout, does not end the iteration: ask again.
    """

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream

    def __aiter__(self) -> MessageBatches:
        return self

    async def __anext__(self) -> list[MessageAndMetadata]:
        """Return the next list, which is not empty. Raises as the stream's `__anext__`."""
        batch = await self._stream.next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
