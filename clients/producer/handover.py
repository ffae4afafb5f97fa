"""Hand records from any thread to a producer on its event loop, without a wait for each.

A call from one thread to another costs as much as sending ten records. So `send` encodes the record
in the caller's thread and puts it in a queue, which the loop empties many at a time. If the
producer would have to wait, for metadata or for room, the caller waits until its record and all
before it are buffered. The records of one thread keep the order of its calls.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any

import attrs

from clients.errors import ProducerClosed
from clients.producer.encoded_record import EncodedRecord, Header
from clients.producer.producer import Producer
from clients.producer.sent_record import SentRecord

MOST_QUEUED = 10_000
"""Most records that wait for the loop before a caller has to wait too."""

RECORDS_PER_TURN = 128
"""Records taken in one turn of the loop, before others have theirs."""


@attrs.define(eq=False)
class _Entry:
    """A record; None marks the place of a caller that waits until all before are buffered."""

    record: EncodedRecord | None
    delivery: SentRecord
    buffered: Future[None] | None
    """The future of a waiting caller."""


@attrs.define(eq=False)
class Handover:
    """The queue between callers and the producer.

    `start` starts a coroutine on the producer's loop, from any thread. It raises ClientClosed when
    the loop has ended.
    """

    producer: Producer
    start: Callable[[Coroutine[Any, Any, None]], object]
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    _queue: deque[_Entry] = attrs.field(factory=deque)
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
    ) -> SentRecord:
        """Queue a record, and return the future of its delivery. Raises as `Producer.send`."""
        record = self.producer.records.encode(topic, value, key, partition, headers, timestamp_ms)
        delivery = SentRecord()

        with self._lock:
            ready = len(self._queue) < MOST_QUEUED and not self.producer._has_partitioner
            ready = ready and self.producer._is_ready_for(record, self._queued_bytes)
            # A future of the buffering only for a caller that must wait; others need not know.
            entry = _Entry(record, delivery, None if ready else Future())
            self._put(entry)
            turn_is_queued = len(self._queue) % RECORDS_PER_TURN == 0

        # Waits outside the lock, so that others can queue their records.
        if entry.buffered is not None:
            entry.buffered.result()
        elif turn_is_queued:
            # A busy thread keeps the interpreter for 5 ms each time that the loop wants it, and the
            # loop wants it several times for each batch.
            time.sleep(0)
        return delivery

    async def wait_until_buffered(self) -> None:
        """Wait until all records sent before are buffered. Call this on the loop."""
        marker = _Entry(None, SentRecord(), Future())
        assert marker.buffered is not None

        with self._lock:
            # Nothing is queued, so all records are buffered.
            if not self._is_draining:
                return
            self._put(marker)

        await asyncio.wrap_future(marker.buffered)

    def close(self) -> None:
        """Take no more records, and fail those that the loop has not taken. The loop has ended."""
        with self._lock:
            self._closed = True
            unsent = list(self._queue)
            self._queue.clear()

        # Callers that wait learn it from their call, others from the delivery.
        for entry in unsent:
            waiting: Future[Any] = entry.buffered or entry.delivery
            if not waiting.done():
                waiting.set_exception(ProducerClosed("the producer was closed meanwhile"))

    def _put(self, entry: _Entry) -> None:
        if self._closed:
            raise ProducerClosed("the producer is closed")

        self._queue.append(entry)
        self._queued_bytes += entry.record[-1] if entry.record else 0

        if not self._is_draining:
            # `start` raises if the loop has ended, so the flag is set only after it.
            self.start(self._drain())
            self._is_draining = True

    async def _drain(self) -> None:
        while entries := self._peek():
            records = [entry.record for entry in entries if entry.record]
            num_taken, error = await self.producer._buffer_all(
                records, [entry.delivery for entry in entries]
            )
            # Those behind the one that failed are taken the next time. A marker is no record, and
            # only shows that all before it are buffered.
            taken = entries if error is None else entries[: num_taken + 1]

            # Shrink the queue only after that: a caller looking for room counts the records once or
            # twice, never not at all.
            with self._lock:
                for entry in taken:
                    self._queue.popleft()
                    self._queued_bytes -= entry.record[-1] if entry.record else 0

            for entry in taken[:-1]:
                _settle(entry, None)
            _settle(taken[-1], error)

            # A turn is over: let the sender and others run.
            await asyncio.sleep(0)

    def _peek(self) -> list[_Entry]:
        """Return the entries of the next turn, of which only the last may have a caller waiting."""
        entries: list[_Entry] = []
        with self._lock:
            # Under the lock: `_put` must see either this loop or none.
            self._is_draining = bool(self._queue)

            for entry in islice(self._queue, RECORDS_PER_TURN):
                entries.append(entry)
                if entry.buffered is not None:
                    break
        return entries


def _settle(entry: _Entry, error: Exception | None) -> None:
    """Give the error, or success, to the waiting caller; without one, the error to the delivery."""
    if entry.buffered is not None and not entry.buffered.cancelled():
        if error is None:
            entry.buffered.set_result(None)
        else:
            entry.buffered.set_exception(error)
    elif error is not None:
        entry.delivery.set_exception(error)
