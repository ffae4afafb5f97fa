"""Hand records from any thread to a producer on its event loop, without a wait for each.

A call from one thread to another costs as much as sending ten records. So `send` encodes the record
in the caller's thread and puts it in a queue, which the loop empties many at a time. If the
producer would have to wait, for metadata or for room, the caller waits until its record and all
that were queued before it are buffered. The records of one thread keep the order of its calls.

Who waits for a topic keeps nobody else waiting. Where a topic, or a partition of it, is gone when
its queued records are taken, they wait in a line of their own.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from itertools import chain, islice
from typing import Any, cast

import attrs

from clients.errors import DeadlineExceeded, ProducerClosed
from clients.producer.deliveries import Delivery
from clients.producer.encoded_record import EncodedRecord, Header
from clients.producer.producer import Producer
from clients.producer.sent_record import SentRecord

logger = logging.getLogger(__name__)

MOST_QUEUED = 10_000
"""Most records that wait for the loop before a caller has to wait too."""

RECORDS_PER_TURN = 128
"""Records taken in one turn of the loop, before others have theirs."""


@attrs.define(eq=False)
class _Entry:
    """A record; None marks the place of somebody who waits until all before it are buffered."""

    record: EncodedRecord | None
    delivery: SentRecord
    buffered: Future[None] | None
    """The future of who waits."""

    @property
    def topic(self) -> str:
        """The record's topic; empty for a marker."""
        return "" if self.record is None else self.record[0]

    @property
    def size(self) -> int:
        """The record's bytes; 0 for a marker."""
        return 0 if self.record is None else self.record[-1]


@attrs.define(eq=False)
class Handover:
    """The queue between callers and the producer.

    `start` starts a coroutine on the producer's loop, from any thread. It raises ClientClosed when
    the loop has ended.
    """

    producer: Producer
    start: Callable[[Coroutine[Any, Any, None]], Future[None]]
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _queue: deque[_Entry] = attrs.field(factory=deque)
    _lines: dict[str, deque[_Entry]] = attrs.field(factory=dict)
    """Those that wait for their topic, by topic."""
    _tasks: set[asyncio.Task[None]] = attrs.field(factory=set)
    _queued_bytes: int = 0
    _is_draining: bool = False
    _closed: bool = False

    def send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        headers: Sequence[Header],
        timestamp_ms: int | None,
        *,
        may_wait: bool = True,
    ) -> SentRecord:
        """Queue a record, and return the future of its delivery. Raises as `Producer.send`.

        Where the caller may not wait, on the thread of a loop, the record waits in the queue.
        """
        record = self.producer.records.encode(topic, value, key, partition, headers, timestamp_ms)
        delivery = SentRecord()

        with self._lock:
            if may_wait:
                is_ready = (
                    len(self._queue) < MOST_QUEUED
                    and topic not in self._lines
                    and not self.producer._has_partitioner
                    and self.producer._is_ready_for(record, self._queued_bytes)
                )
            else:
                # Others would wait for it in its topic's line (fault strangers-164, was: True).
                is_ready = not self.producer._lacks_partition(record)
            if is_ready:
                self._put(_Entry(record, delivery, None))
            turn_is_queued = len(self._queue) % RECORDS_PER_TURN == 0

        # Waits outside the lock and the queue, so that others can send theirs
        # (fault strangers-138).
        if not is_ready and not may_wait:
            self.start(self._buffer_apart(record, delivery))
        elif not is_ready:
            self._wait_for(self._buffer_behind(record, delivery))
        elif turn_is_queued:
            # A busy thread keeps the interpreter for 5 ms each time that the loop wants it, and the
            # loop wants it several times for each batch.
            time.sleep(0)
        return delivery

    def _wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait in the caller's thread for work on the loop. Raises ProducerClosed if that ends."""
        future = self.start(work)
        try:
            future.result()
        except CancelledError:
            raise ProducerClosed("the producer was closed meanwhile") from None
        finally:
            future.cancel()

    async def _buffer_behind(self, record: EncodedRecord, delivery: SentRecord) -> None:
        """Buffer a record behind those that were queued before it."""
        await self.wait_until_taken()
        await self._wait_in_lines([record[0]])
        await self.producer._buffer_record(record, cast(Delivery, delivery))

    async def _buffer_apart(self, record: EncodedRecord, delivery: SentRecord) -> None:
        """Do the same for a caller that does not wait: its error is the delivery's."""
        try:
            await self._buffer_behind(record, delivery)
        except asyncio.CancelledError:
            # The loop ends, and nobody else knows of the record.
            delivery.set_exception(ProducerClosed("the producer was closed meanwhile"))
            raise
        except Exception as error:
            delivery.set_exception(error)

    async def wait_until_buffered(self) -> None:
        """Wait until all records sent before are buffered. Call this on the loop."""
        await self.wait_until_taken()
        await self._wait_in_lines([*self._lines])

    async def wait_until_taken(self) -> None:
        """Wait until all records sent before are buffered, or wait for their topics."""
        with self._lock:
            # Nothing is queued, so all records are taken.
            if not self._is_draining:
                return
            reached = _mark(self._queue)
        await asyncio.wrap_future(reached)

    async def _wait_in_lines(self, topics: Iterable[str]) -> None:
        """Wait until all that wait for these topics are buffered, or have failed."""
        with self._lock:
            marks = [_mark(self._lines[topic]) for topic in topics if topic in self._lines]
        for reached in marks:
            await asyncio.wrap_future(reached)

    def close(self) -> None:
        """Take no more records, and fail those that are not buffered. The loop has ended."""
        with self._lock:
            self._closed = True
            unsent = [*self._queue, *chain.from_iterable(self._lines.values())]
            self._queue.clear()
            self._lines.clear()

        number = sum(entry.record is not None for entry in unsent)
        if number:
            logger.error("%d records were not sent when the producer closed", number)

        # Callers that wait learn it from their call, others from the delivery.
        for entry in unsent:
            waiting: Future[Any] = entry.buffered or entry.delivery
            if not waiting.done():
                waiting.set_exception(ProducerClosed("the producer was closed meanwhile"))

    def _put(self, entry: _Entry) -> None:
        if self._closed:
            raise ProducerClosed("the producer is closed")

        self._queue.append(entry)
        self._queued_bytes += entry.size

        if not self._is_draining:
            # `start` raises if the loop has ended, so the flag is set only after it.
            self.start(self._drain())
            self._is_draining = True

    async def _drain(self) -> None:
        while entries := self._peek():
            records = [entry.record for entry in entries if entry.record]
            num_taken, error = await self.producer._buffer_all(
                records, [entry.delivery for entry in entries], waits_for_partitions=False
            )

            # A marker is no record, and only shows that all before it are buffered.
            done = entries[:num_taken] if num_taken < len(records) else entries
            if error is not None:
                done = entries[: num_taken + 1]
                entries[num_taken].delivery.set_exception(error)

            # Shrink the queue only after that: a caller looking for room counts the records once or
            # twice, never not at all.
            with self._lock:
                for entry in done:
                    self._queue.popleft()
                    self._queued_bytes -= entry.size
                if not done:
                    self._line_up(self._queue.popleft())
            _tell(done)

            # A turn is over: let the sender and others run.
            await asyncio.sleep(0)

    def _peek(self) -> list[_Entry]:
        """Return the entries of the next turn, of which only the last may be a marker."""
        entries: list[_Entry] = []
        with self._lock:
            # Who comes later stays behind those of its topic.
            while self._queue and self._queue[0].topic in self._lines:
                self._line_up(self._queue.popleft())

            # Under the lock: `_put` must see either this loop or none.
            self._is_draining = bool(self._queue)

            for entry in islice(self._queue, RECORDS_PER_TURN):
                if entry.topic in self._lines:
                    break
                entries.append(entry)
                if entry.buffered is not None:
                    break
        return entries

    # --- lines of records that wait for their topic

    def _line_up(self, entry: _Entry) -> None:
        """Let a record wait for its topic, behind those that do already. Under the lock."""
        topic = entry.topic
        if topic not in self._lines:
            self._lines[topic] = deque()
            task = asyncio.create_task(self._buffer_line(topic))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._lines[topic].append(entry)

    async def _buffer_line(self, topic: str) -> None:
        """Buffer those who wait for a topic, in their order."""
        line = self._lines[topic]
        while True:
            with self._lock:
                if not line:
                    del self._lines[topic]
                    return
                entries = [*line]

            entry = entries[0]
            error = None
            if entry.record is not None:
                _, error = await self.producer._buffer_all([entry.record], [entry.delivery])

            # Those that were there have waited as long.
            done = entries if isinstance(error, DeadlineExceeded) else entries[:1]
            with self._lock:
                for entry in done:
                    line.popleft()
                    self._queued_bytes -= entry.size
            if error is not None:
                for entry in done:
                    if entry.record is not None:
                        entry.delivery.set_exception(error)
            _tell(done)


def _mark(line: deque[_Entry]) -> Future[None]:
    """Return the future of when all that are in a line now are buffered, or have failed."""
    reached: Future[None] = Future()
    line.append(_Entry(None, SentRecord(), reached))
    return reached


def _tell(done: Iterable[_Entry]) -> None:
    """Tell those who wait that all before them are buffered, or have failed."""
    for entry in done:
        if entry.buffered is not None and not entry.buffered.cancelled():
            entry.buffered.set_result(None)
