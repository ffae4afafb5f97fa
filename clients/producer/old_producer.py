"""A producer with `producer.type`: messages go through an event handler, directly or queued."""

import asyncio
import inspect
import logging
from typing import Any

from clients.cluster import Cluster
from clients.errors import FailedToSendMessage, ProducerClosed
from clients.named_object import made_of, named_object
from clients.producer.deliveries import RecordMetadata
from clients.producer.event_handler import Buffer, DefaultEventHandler
from clients.producer.handlers import (
    CallbackHandler,
    EventHandler,
    ProducerMetrics,
    with_all_hooks,
)
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import OldProducerConfig, properties
from clients.producer.send_queue import SendQueue
from clients.shared_close import SharedClose

logger = logging.getLogger(__name__)


class OldProducer:
    """The part of a producer that handles messages. `buffer` is the producer's way to send."""

    def __init__(
        self,
        config: OldProducerConfig,
        cluster: Cluster,
        buffer: Buffer,
        metrics: ProducerMetrics,
    ) -> None:
        self.metrics = metrics
        self._closed = False
        self._runner: asyncio.Task[None] | None = None

        # Hooks stand around the queue, which only an async producer has.
        hooks = CallbackHandler()
        if config.callback_handler is not None and config.producer_type == "async":
            handler = made_of("callback.handler", named_object, config.callback_handler)
            hooks = with_all_hooks(handler)
        self._hooks = hooks

        self._handler: EventHandler = DefaultEventHandler(
            config, cluster, buffer, hooks, self.metrics
        )

        # The application's own handler replaces ours.
        if config.event_handler is not None:
            self._handler = made_of("event.handler", named_object, config.event_handler)
            if hasattr(self._handler, "init"):
                self._handler.init(properties(config.event_handler_props))
        hooks.init(properties(config.callback_handler_props))

        self._queue: SendQueue | None = None
        if config.producer_type == "async":
            self._queue = SendQueue(config, self._handler, hooks, self.metrics)

    async def send(self, messages: list[KeyedMessage]) -> list[RecordMetadata] | None:
        """Async: queue the messages and return None. Sync: send them and return their places.

        An application's own event handler may return something else. Raises as `Producer.send`.
        """
        if self._closed:
            raise ProducerClosed("the producer is closed")

        self.metrics.sent_messages.count += len(messages)

        # The queue's task starts with the first message, on the loop of its caller.
        if self._queue is not None:
            self._start(self._queue)
            await self._queue.put(messages)
            return None

        try:
            result = self._handler.handle(messages)
            places: Any = await result if inspect.isawaitable(result) else result
        except FailedToSendMessage as error:
            self.metrics.failures.count += len(error.messages)
            raise
        return [] if places is None else places

    async def flush(self) -> None:
        """Wait until all queued messages are handled. Raises ProducerClosed."""
        if self._queue is not None:
            await self._queue.flush()

    async def close(self, closing: SharedClose) -> None:
        """Handle the queued messages in the time of the close, then close the handlers.

        Called once. Raises FailedToSendMessage with the messages that were not handled.
        """
        self._closed = True
        begun_s = asyncio.get_running_loop().time()
        unhandled: list[KeyedMessage] = []
        try:
            if self._queue is not None:
                unhandled = await self._close_queue(self._queue, closing)
        finally:
            # Handlers may hold resources, also where the queue did not end well.
            closed = self._handler.close()
            if inspect.isawaitable(closed):
                await closed

        if unhandled:
            waited_ms = round((asyncio.get_running_loop().time() - begun_s) * 1000)
            raise FailedToSendMessage(unhandled, f"the producer closed after {waited_ms} ms")

    def _start(self, queue: SendQueue) -> None:
        if self._runner is None:
            self._runner = asyncio.create_task(queue.run(), name="producer-queue")

    async def _close_queue(self, queue: SendQueue, closing: SharedClose) -> list[KeyedMessage]:
        # As in 0.7, the hooks close before the last messages are handled.
        try:
            self._hooks.close()
        except Exception:
            logger.exception("the callback handler's close failed")

        # A queue that was never used runs too: hooks may send messages at the end.
        self._start(queue)
        assert self._runner is not None
        queue.close()

        try:
            async with closing.in_time():
                await asyncio.wait([self._runner])
        finally:
            # After its time, the loop ends where it is; what it holds is returned.
            self._runner.cancel()
            await asyncio.wait([self._runner])
            unhandled = queue.abort()

        # An error of the loop itself reaches the caller.
        if not self._runner.cancelled():
            self._runner.result()
        return unhandled
