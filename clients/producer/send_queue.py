"""The queue of an async producer, and the loop that empties it in batches.

A batch is handled when it is full, or when `queue.time` has passed since the last one and the queue
is empty. Under load only the size counts, and an idle producer wakes once per `queue.time`. That is
the rule of 0.7, which also had the hooks. Unlike there, an error only costs its own batch, and no
accepted message is dropped silently.
"""

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Sequence

import attrs

from clients.errors import FailedToSendMessage, ProducerClosed, QueueFull
from clients.producer.handlers import CallbackHandler, EventHandler, ProducerMetrics, messages_of
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import OldProducerConfig

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class SendQueue:
    """The queue. `run` is its loop, which ends after `close`, when everything has been handled."""

    config: OldProducerConfig
    handler: EventHandler
    hooks: CallbackHandler
    metrics: ProducerMetrics
    closed: bool = attrs.field(init=False, default=False)
    _events: deque[KeyedMessage] = attrs.field(init=False, factory=deque)
    _batch: list[KeyedMessage] = attrs.field(init=False, factory=list)
    """Messages taken from the queue and not handled yet."""
    _accepted: int = attrs.field(init=False, default=0)
    _taken: int = attrs.field(init=False, default=0)
    _handled: int = attrs.field(init=False, default=0)
    """Counts of messages; one that a hook holds back counts as handled."""
    _is_hurried: bool = attrs.field(init=False, default=False)
    """True during a flush: the batch does not wait for more messages when the queue is empty."""
    _turn: asyncio.Lock = attrs.field(init=False, factory=asyncio.Lock)
    """Held by the caller whose messages are being queued, in order of arrival."""
    _arrived: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _room: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)
    _progress: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)

    async def put(self, events: Sequence[KeyedMessage]) -> None:
        """Queue messages in order, and wait for room as `queue.enqueue.timeout.ms` says.

        Raises QueueFull, ProducerClosed, and errors of `before_enqueue` for the first message that
        is not accepted. Messages before it stay queued; messages after it are not tried.
        """
        async with self._turn:
            for event in events:
                self._require_open()
                queued = self.hooks.before_enqueue(event)
                if not isinstance(queued, KeyedMessage):
                    raise TypeError(f"before_enqueue returned a {type(queued).__name__}")

                # The lock is held meanwhile, so later callers stay behind this message.
                added = await self._has_room()
                if added:
                    self._events.append(queued)
                    self._accepted += 1
                    self._arrived.set()
                else:
                    self.metrics.dropped.count += 1

                # A hook that raises here does not undo the message.
                try:
                    self.hooks.after_enqueue(queued, added)
                except Exception:
                    logger.exception("after_enqueue failed (added: %s)", added)

                if not added:
                    raise QueueFull(f"{len(self._events)} messages already wait to be sent")

    async def flush(self) -> None:
        """Wait until all messages queued so far are handled. Raises ProducerClosed."""
        through = self._accepted
        while self._handled < through:
            self._require_open()
            self._is_hurried = True
            self._arrived.set()
            self._progress.clear()
            await self._progress.wait()

    def close(self) -> None:
        """Accept no more messages, not even from callers that wait for room."""
        self.closed = True
        self._arrived.set()
        self._room.set()

    def abort(self) -> list[KeyedMessage]:
        """Give up the messages that a cancelled loop did not handle; return and report them."""
        # Messages of an unfinished batch come first: they are the oldest.
        unhandled = [*self._batch, *self._events]
        self._batch = []
        self._events.clear()
        if unhandled:
            self._report(unhandled, ProducerClosed("the producer was closed first"))
        return unhandled

    async def run(self) -> None:
        """Handle batches until the queue is closed and empty."""
        now = asyncio.get_running_loop().time
        last_send = now()
        try:
            while True:
                event = await self._poll(last_send)
                if event is None and self.closed:
                    break

                # The hook is called with None too: it may release what it held back.
                self._take(event)

                # No event: the queue time is over.
                if event is None or len(self._batch) >= self.config.batch_num_messages:
                    await self._handle()
                    last_send = now()

            # The hooks may hold messages back until the end.
            self._take_last()
            await self._handle()
        finally:
            # Also after a failure of the loop: callers that wait for room or a flush must not hang.
            self.close()
            self._progress.set()

    async def _has_room(self) -> bool:
        timeout_ms = self.config.queue_enqueue_timeout_ms
        most = self.config.queue_buffering_max_messages
        if len(self._events) < most:
            return True

        # 0 drops at once; a negative time waits without end.
        if timeout_ms == 0:
            return False

        try:
            async with asyncio.timeout(None if timeout_ms < 0 else timeout_ms / 1000):
                while len(self._events) >= most:
                    self._room.clear()
                    await self._room.wait()
                    self._require_open()
        except TimeoutError:
            return False
        return True

    async def _poll(self, last_send: float) -> KeyedMessage | None:
        """Return the next message; None after `queue.time`, or if flushed or closed and empty."""
        queue_time_ms = self.config.queue_buffering_max_ms
        # Nothing waits for a batch and no time is set, so only an event can be worth waking for.
        endless = queue_time_ms == 0 and not self._batch

        try:
            async with asyncio.timeout_at(None if endless else last_send + queue_time_ms / 1000):
                while not (self._events or self._is_hurried or self.closed):
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass

        # A flush ends with the queue, and the batch is handled as it is.
        if not self._events:
            self._is_hurried = False
            return None

        self._taken += 1
        self._room.set()
        return self._events.popleft()

    def _take(self, event: KeyedMessage | None) -> None:
        try:
            dequeued = self.hooks.after_dequeuing_existing_data(event)
            self._batch += messages_of(dequeued, "after_dequeuing_existing_data")
        except Exception as error:
            # A hook that raises fails the batch of its call.
            lost = self._batch if event is None else [*self._batch, event]
            self._batch = []
            self._report(lost, error)

    def _take_last(self) -> None:
        try:
            held_back = self.hooks.last_batch_before_close()
            self._batch += messages_of(held_back, "last_batch_before_close")
        except Exception as error:
            self._report([], error)

    async def _handle(self) -> None:
        if self._batch:
            try:
                handled = self.handler.handle(list(self._batch))
                if inspect.isawaitable(handled):
                    await handled
            except FailedToSendMessage as error:
                # The handler knows which messages were not stored.
                self._report(error.messages, error)
            except Exception as error:
                # The handler does not say which messages were stored, so all count as lost.
                self._report(self._batch, error)
        self._batch = []
        # Also after an error: a flush waits for attempts, not for success.
        self._handled = self._taken
        self._progress.set()

    def _report(self, lost: Sequence[KeyedMessage], error: Exception) -> None:
        self.metrics.failures.count += len(lost)
        logger.error("%d messages were accepted and not sent", len(lost), exc_info=error)
        try:
            self.hooks.not_sent(lost, error)
        except Exception:
            # A hook for errors must not end the loop.
            logger.exception("not_sent failed")

    def _require_open(self) -> None:
        if self.closed:
            raise ProducerClosed("the producer is closed")
