"""Hooks of an application between `send` and the wire, with `producer.type`.

All hooks run on the event loop, so a slow one delays everything. A handler needs only the methods
that it uses. A handler that raises fails the batch of that call and no other. The error is logged
and counted, and `not_sent` is called with it.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from clients.producer.messages import KeyedMessage
from protocol.metrics import Metrics


class EventHandler(Protocol):
    """Handles messages in place of the producer: `event.handler`."""

    def handle(self, events: list[KeyedMessage]) -> Awaitable[Any] | Any:
        """Send the messages, or do anything else with them; a coroutine is awaited.

        Calls do not overlap in an async producer. A sync `send` returns the result.
        """

    def close(self) -> Awaitable[None] | None:
        """Close. The producer calls this once, after the last batch."""


class CallbackHandler:
    """Hooks of 0.7's async producer: `callback.handler`. Each does nothing by default."""

    def init(self, props: Mapping[str, str]) -> None:
        """Start. Called before all other hooks; `props` is `callback.handler.props`."""

    def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
        """Return the message to queue in place of this one. Called in `send`."""
        return event

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        """See the message of `before_enqueue`, queued or not (`added`; the queue was full)."""

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
        """Return the messages that join the batch.

        They may be fewer than were passed, to hold some back, or more, to release them. `event` is
        None if `queue.time` has passed without a message.
        """
        return [] if event is None else [event]

    def before_sending_data(self, events: list[KeyedMessage]) -> list[KeyedMessage]:
        """Return the batch to send in place of this one. Not called for an `event.handler`."""
        return events

    def last_batch_before_close(self) -> list[KeyedMessage]:
        """Return the messages that were held back. Called after all others left the queue."""
        return []

    def not_sent(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
        """See messages that were accepted and will not be sent. 0.7 only logged them.

        A message that was in flight at the timeout may be among them.
        """

    def close(self) -> None:
        """Close. As in 0.7, called when the producer begins to close."""


# --- counts


class ProducerMetrics:
    """The counts of a producer since its start, under the names of Kafka's meters.

    Every producer has the first three; those with `producer.type` have the others too. They count
    in `metrics`.
    """

    def __init__(self, metrics: Metrics | None = None) -> None:
        self.metrics = metrics = Metrics() if metrics is None else metrics
        self.record_sends = metrics.counter("record_send_total")
        self.record_retries = metrics.counter("record_retry_total")
        self.record_errors = metrics.counter("record_error_total")
        self.sent_messages = metrics.counter("messages_total")
        self.dropped = metrics.counter("dropped_messages_total")
        self.unserializable = metrics.counter("serialization_errors_total")
        self.failures = metrics.counter("failed_sends_total")

    @property
    def record_send_total(self) -> int:
        """Records in requests; one counts each time it is sent."""
        return self.record_sends.count

    @property
    def record_retry_total(self) -> int:
        """Records that are sent again after a failed attempt."""
        return self.record_retries.count

    @property
    def record_error_total(self) -> int:
        """Records that were given up: accepted by `send`, and not known to be stored."""
        return self.record_errors.count

    @property
    def messages(self) -> int:
        """Messages given to a producer with `producer.type`."""
        return self.sent_messages.count

    @property
    def dropped_messages(self) -> int:
        """Messages that were refused because the queue was full."""
        return self.dropped.count

    @property
    def serialization_errors(self) -> int:
        """Messages that could not be encoded."""
        return self.unserializable.count

    @property
    def failed_sends(self) -> int:
        """Messages that were accepted, and are not known to be stored."""
        return self.failures.count

    def by_name(self) -> dict[str, int]:
        """Return the counts that every producer has, by Kafka's names."""
        return {
            "record-send-total": self.record_send_total,
            "record-retry-total": self.record_retry_total,
            "record-error-total": self.record_error_total,
        }


# --- hooks from outside


def messages_of(returned: Any, hook: str) -> list[KeyedMessage]:
    """Return the result of a hook, if it is a list of messages. Raises TypeError if not."""
    if not isinstance(returned, list) or not all(
        isinstance(message, KeyedMessage) for message in returned
    ):
        raise TypeError(f"{hook} returned {returned!r}, which is not a list of messages")
    return returned


def with_all_hooks(handler: Any) -> CallbackHandler:
    """Return a handler with all hooks: those of `handler`, and defaults for the others."""
    if isinstance(handler, CallbackHandler):
        return handler

    # A handler without a method gets the default.
    complete = CallbackHandler()
    for name in vars(CallbackHandler):
        if not name.startswith("_") and hasattr(handler, name):
            setattr(complete, name, getattr(handler, name))
    return complete
