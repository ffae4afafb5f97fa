"""The queue of an async producer, and the loop that empties it in batches.

A batch is handled when it is full, or when `queue.time` has passed since the last one and the queue
is empty: so under load only size counts, and an idle producer looks up once in `queue.time`. As in
0.7, where the hooks come from; unlike there, what raises costs its own batch and no more, and
nothing that was accepted is forgotten.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

import attrs

from clients.errors import FailedToSendMessage, ProducerClosed, QueueFull
from clients.producer.event_handler import ProducerMetrics
from clients.producer.handlers import CallbackHandler, EventHandler
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import OldProducerConfig

_log = logging.getLogger(__name__)


@attrs.define(eq=False)
class SendQueue:
    """Owned by an async producer. `run` is the loop; it ends after `close`, when all is handled."""

    config: OldProducerConfig
    handler: EventHandler
    hooks: CallbackHandler
    metrics: ProducerMetrics
    closed: bool = attrs.field(init=False, default=False)
    _events: deque[KeyedMessage] = attrs.field(init=False, factory=deque)
    _batch: list[KeyedMessage] = attrs.field(init=False, factory=list)
    """Taken from the queue and not handled yet."""
    _turn: asyncio.Lock = attrs.field(init=False, factory=asyncio.Lock)
    """Callers queue their messages one call after another, first come, first served."""
    _changed: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _room: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _flushed: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _flushing: int = attrs.field(init=False, default=0)
    _accepted: int = attrs.field(init=False, default=0)
    _taken: int = attrs.field(init=False, default=0)

    def __len__(self) -> int:
        return len(self._events)

    async def put(self, events: Sequence[KeyedMessage]) -> None:
        """Queue messages in this order, waiting for room as `queue.enqueue.timeout.ms` says.

        Raises QueueFull and ProducerClosed for the first that is not accepted, and what
        `before_enqueue` raises; those before it stay queued, those behind it are not tried.
        """
        async with self._turn:
            for event in events:
                queued = self.hooks.before_enqueue(event)
                if not isinstance(queued, KeyedMessage):
                    raise TypeError(f"before_enqueue returned a {type(queued).__name__}")
                added = await self._has_room()
                if added:
                    self._events.append(queued)
                    self._accepted += 1
                    self.metrics.messages += 1
                    self._changed.set()
                self._tell_after_enqueue(queued, added)
                if not added:
                    self.metrics.dropped_messages += 1
                    raise QueueFull(f"{len(self._events)} messages wait for a batch to be sent")

    async def flush(self) -> None:
        """Have all that is queued now handled without waiting for more. Raises ProducerClosed."""
        through = self._accepted
        self._flushing += 1
        self._changed.set()
        try:
            while self._taken < through or (self._batch and not self.closed):
                self._flushed.clear()
                await self._flushed.wait()
        finally:
            self._flushing -= 1

    def close(self) -> None:
        """Accept no more; who waits for room is told."""
        self.closed = True
        self._changed.set()
        self._room.set()

    def leave(self) -> list[KeyedMessage]:
        """What the loop did not handle, once it has been cancelled; the queue forgets it."""
        left = [*self._batch, *self._events]
        self._batch.clear()
        self._events.clear()
        return left

    async def run(self) -> None:
        """Handle batches until closed and empty."""
        now = asyncio.get_running_loop().time
        try:
            last_send = now()
            while (event := await self._poll(last_send)) is not None or not self.closed:
                self._take(event)
                if event is None or len(self._batch) >= self.config.batch_num_messages:
                    await self._handle()
                    last_send = now()
            self._take_last()
            await self._handle()
        finally:
            self.close()
            self._flushed.set()
