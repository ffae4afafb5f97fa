"""Where an application may step in between `send` and the wire, with `producer.type`.

All of it is called on the event loop: what takes long there holds up everything. A handler needs
only the methods it has a use for. One that raises fails the batch it was called for and no other;
that is logged, counted, and told to `not_sent`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from clients.producer.messages import KeyedMessage


class EventHandler(Protocol):
    """Disposes of messages in the producer's place: `event.handler`."""

    def handle(self, events: list[KeyedMessage]) -> Awaitable[Any] | Any:
        """Send these, or do with them what else is wanted; a coroutine is awaited.

        Calls do not overlap in an async producer. What it returns, a sync `send` returns.
        """

    def close(self) -> Awaitable[None] | None:
        """Called once, when the last batch has been handled."""


class CallbackHandler:
    """Hooks of 0.7's async producer, each of which does nothing here: `callback.handler`."""

    def init(self, props: Mapping[str, str]) -> None:
        """First of all; `props` is `callback.handler.props`."""

    def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
        """In `send`; returns the message to queue in this one's place."""
        return event

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        """In `send`, with what `before_enqueue` returned; not `added` when the queue was full."""

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
        """Returns what joins the batch; fewer messages hold some back, more release them.

        None when `queue.time` has passed and nothing came.
        """
        return [] if event is None else [event]

    def before_sending_data(self, events: list[KeyedMessage]) -> list[KeyedMessage]:
        """Returns the batch to send in this one's place. Not called for an `event.handler`."""
        return events

    def last_batch_before_close(self) -> list[KeyedMessage]:
        """After all else has been taken from the queue; returns what was held back."""
        return []

    def not_sent(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
        """These were accepted and will not be sent. Ours: 0.7 dropped them with a line in the log.

        A message that was on its way when time ran out is among them.
        """

    def close(self) -> None:
        """When the producer begins to close: as in 0.7 before `last_batch_before_close`."""


@attrs.define(eq=False)
class ProducerMetrics:
    """What a producer has counted since its start, under the names of Kafka's meters.

    The first three are every producer's, the others those of one with `producer.type`.
    """

    record_send_total: int = 0
    """Records in requests, each time they were sent."""
    record_retry_total: int = 0
    """Records whose attempt failed, to be sent again."""
    record_error_total: int = 0
    """Records given up: accepted by `send`, and not known to be stored."""
    messages: int = 0
    dropped_messages: int = 0
    """Refused because the queue was full."""
    serialization_errors: int = 0
    failed_sends: int = 0
    """Accepted, and not known to be stored."""

    def by_name(self) -> dict[str, int]:
        """Every producer's, as Kafka spells them."""
        return {
            "record-send-total": self.record_send_total,
            "record-retry-total": self.record_retry_total,
            "record-error-total": self.record_error_total,
        }


def messages_of(returned: Any, hook: str) -> list[KeyedMessage]:
    """What a hook returned, if it is a list of messages. Raises TypeError."""
    if not isinstance(returned, list) or not all(isinstance(m, KeyedMessage) for m in returned):
        raise TypeError(f"{hook} returned {returned!r}, which is no list of messages")
    return returned


def with_all_hooks(handler: Any) -> CallbackHandler:
    """A callback handler that has every hook, whatever `handler` has."""
    if isinstance(handler, CallbackHandler):
        return handler
    complete = CallbackHandler()
    for name in vars(CallbackHandler):
        if not name.startswith("_") and hasattr(handler, name):
            setattr(complete, name, getattr(handler, name))
    return complete
