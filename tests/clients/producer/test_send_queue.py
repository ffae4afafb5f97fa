"""The queue of an async producer and its hooks, on a virtual clock."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from clients.errors import FailedToSendMessage, ProducerClosed, QueueFull
from clients.producer.handlers import CallbackHandler, ProducerMetrics, with_all_hooks
from clients.producer.messages import KeyedMessage
from clients.producer.old_config import load_old_producer_config
from clients.producer.send_queue import SendQueue

pytestmark = pytest.mark.virtual_time


class Handler:
    """A handler that records batches and their times; it fails for those in `fails`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.times_ms: list[int] = []
        self.takes_s = 0.0
        self.fails: Callable[[list[str]], Exception | None] = lambda batch: None

    async def handle(self, events: list[KeyedMessage]) -> None:
        batch = [event.message for event in events]
        self.batches.append(batch)
        self.times_ms.append(round(asyncio.get_running_loop().time() * 1000))
        await asyncio.sleep(self.takes_s)
        error = self.fails(batch)
        if error is not None:
            raise error

    def close(self) -> None: ...


class Hooks(CallbackHandler):
    """Hooks that record their calls."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.lost: list[str] = []

    def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
        self.told.append((event.message, added))

    def not_sent(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
        self.lost += [event.message for event in events]


def message(text: str) -> KeyedMessage:
    return KeyedMessage("t", None, text)


def messages(texts: str) -> list[KeyedMessage]:
    return [message(text) for text in texts]


def queue_of(
    handler: Any = None, hooks: CallbackHandler | None = None, **settings: Any
) -> SendQueue:
    given = {"bootstrap.servers": "h:1", "producer.type": "async", **settings}
    config, _ = load_old_producer_config(given)
    return SendQueue(config, handler or Handler(), hooks or CallbackHandler(), ProducerMetrics())


@asynccontextmanager
async def running(queue: SendQueue) -> AsyncIterator[None]:
    """Run the loop during the block, and then to its end."""
    runner = asyncio.create_task(queue.run())
    try:
        yield
    finally:
        queue.close()
        await runner


async def test_batches_are_handled_when_full_and_the_rest_at_the_close() -> None:
    handler = Handler()
    queue = queue_of(handler, batch_size=5)
    async with running(queue):
        await queue.put(messages("abcdefghij"))
        await asyncio.sleep(0.1)
        await queue.put(messages("k"))
    assert handler.batches == [[*"abcde"], [*"fghij"], ["k"]]


async def test_batch_that_does_not_fill_is_handled_when_queue_time_is_up() -> None:
    handler = Handler()
    queue = queue_of(handler, queue_time=200)
    async with running(queue):
        await queue.put(messages("ab"))
        await asyncio.sleep(0.15)
        await queue.put(messages("c"))
        await asyncio.sleep(0.15)
        assert (handler.batches, handler.times_ms) == ([[*"abc"]], [200])


async def test_queue_time_begins_anew_with_each_batch_also_an_empty_one() -> None:
    """KAFKA-138: the deadline is the last batch plus queue.time, neither earlier nor later."""
    handler = Handler()
    queue = queue_of(handler, queue_time=200, batch_size=2)
    async with running(queue):
        await asyncio.sleep(0.45)  # two empty ones, at 200 and 400
        await queue.put(messages("ab"))  # full at 450
        await asyncio.sleep(0.1)
        await queue.put(messages("c"))
        await asyncio.sleep(0.2)
    assert handler.times_ms == [450, 650]


async def test_without_queue_time_messages_are_handled_at_once_and_an_idle_queue_sleeps() -> None:
    class Counting(CallbackHandler):
        calls = 0

        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
            self.calls += 1
            return super().after_dequeuing_existing_data(event)

    handler = Handler()
    hooks = Counting()
    queue = queue_of(handler, hooks, queue_time=0)
    async with running(queue):
        await asyncio.sleep(10)
        await queue.put(messages("ab"))
        await asyncio.sleep(10)
        assert (handler.batches, handler.times_ms) == ([["a", "b"]], [10_000])
        assert hooks.calls == 3


async def test_flush_handles_what_is_queued_without_waiting_for_more() -> None:
    handler = Handler()
    queue = queue_of(handler, queue_time=60_000)
    async with running(queue):
        await queue.put(messages("abc"))
        await queue.flush()
        assert handler.batches == [[*"abc"]]
        await queue.flush()
    assert handler.times_ms == [0]


async def test_flush_of_a_queue_that_was_closed_first_is_told() -> None:
    queue = queue_of()
    await queue.put(messages("a"))
    queue.close()
    with pytest.raises(ProducerClosed):
        await queue.flush()


async def test_full_queue_drops_at_once_when_told_not_to_wait() -> None:
    hooks = Hooks()
    queue = queue_of(hooks=hooks, queue_size=2, queue_enqueue_timeout_ms=0)
    with pytest.raises(QueueFull):
        await queue.put(messages("abcd"))
    assert asyncio.get_running_loop().time() == 0
    assert hooks.told == [("a", True), ("b", True), ("c", False)], "d was not tried"
    assert [event.message for event in queue.abort()] == ["a", "b"]
    assert queue.metrics.dropped_messages == 1


async def test_full_queue_waits_as_long_as_it_was_told() -> None:
    queue = queue_of(queue_size=1, queue_enqueue_timeout_ms=70)
    with pytest.raises(QueueFull):
        await queue.put(messages("ab"))
    assert asyncio.get_running_loop().time() == pytest.approx(0.07)


async def test_full_queue_blocks_by_default_until_there_is_room() -> None:
    """KAFKA-709: dropping is an explicit choice."""
    handler = Handler()
    handler.takes_s = 100
    queue = queue_of(handler, queue_size=2)
    async with running(queue):
        await queue.put(messages("abcdefg"))
    assert "".join(map("".join, handler.batches)) == "abcdefg"
    assert max(map(len, handler.batches)) <= 2


async def test_callers_who_wait_for_room_are_served_in_their_order() -> None:
    handler = Handler()
    handler.takes_s = 1
    queue = queue_of(handler, queue_size=1)
    async with running(queue):
        await asyncio.gather(*(queue.put(messages(texts)) for texts in ("abc", "de", "f")))
    assert "".join(map("".join, handler.batches)) == "abcdef"


async def test_close_wakes_who_waits_for_room_and_refuses_who_comes_later() -> None:
    """KAFKA-6897."""
    queue = queue_of(queue_size=1)
    await queue.put(messages("a"))
    waiting = asyncio.create_task(queue.put(messages("b")))
    await asyncio.sleep(1)
    queue.close()
    with pytest.raises(ProducerClosed):
        await waiting
    with pytest.raises(ProducerClosed):
        await queue.put(messages("c"))
    await queue.run()


async def test_what_is_queued_at_the_close_is_handled_however_long_it_takes() -> None:
    """KAFKA-116: everything accepted is handled before the loop ends, the last messages too."""
    handler = Handler()
    handler.takes_s = 1000
    queue = queue_of(handler, batch_size=3)
    async with running(queue):
        await queue.put(messages("abcdefgh"))
    assert handler.batches == [[*"abc"], [*"def"], [*"gh"]]
    assert queue.abort() == []


async def test_what_a_cancelled_loop_did_not_handle_is_returned_and_reported() -> None:
    handler = Handler()
    hooks = Hooks()
    handler.takes_s = 1000
    queue = queue_of(handler, hooks, batch_size=2)
    runner = asyncio.create_task(queue.run())
    await queue.put(messages("abcde"))
    await asyncio.sleep(1500)  # ab is handled, cd is being handled
    queue.close()
    runner.cancel()
    await asyncio.wait([runner])
    assert [event.message for event in queue.abort()] == [*"cde"]
    assert hooks.lost == [*"cde"]
    assert queue.metrics.failed_sends == 3


async def test_batch_that_fails_costs_no_other() -> None:
    handler = Handler()
    hooks = Hooks()
    handler.fails = lambda batch: OSError("broken") if "a" in batch else None
    queue = queue_of(handler, hooks, batch_size=2)
    async with running(queue):
        await queue.put(messages("abcd"))
    assert handler.batches == [[*"ab"], [*"cd"]]
    assert hooks.lost == [*"ab"]


async def test_of_a_batch_that_was_sent_in_part_the_rest_is_reported() -> None:
    handler = Handler()
    hooks = Hooks()
    handler.fails = lambda batch: FailedToSendMessage(messages("b"), "leader gone")
    queue = queue_of(handler, hooks)
    async with running(queue):
        await queue.put(messages("abc"))
    assert hooks.lost == ["b"]
    assert queue.metrics.failed_sends == 1


async def test_plain_function_may_handle() -> None:
    class Plain:
        def __init__(self) -> None:
            self.handled: list[str] = []

        def handle(self, events: list[KeyedMessage]) -> None:
            self.handled += [event.message for event in events]

    handler = Plain()
    queue = queue_of(handler)
    async with running(queue):
        await queue.put(messages("ab"))
    assert handler.handled == [*"ab"]


# --- hooks ----------------------------------------------------------------------------------------


async def test_message_is_queued_as_before_enqueue_returned_it() -> None:
    class Replacing(Hooks):
        def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
            return message(event.message.upper())

    handler = Handler()
    hooks = Replacing()
    queue = queue_of(handler, hooks)
    async with running(queue):
        await queue.put(messages("ab"))
    assert handler.batches == [["A", "B"]]
    assert hooks.told == [("A", True), ("B", True)]


async def test_hook_may_add_to_a_batch_and_what_it_adds_counts() -> None:
    class Doubling(CallbackHandler):
        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
            return [] if event is None else [event, event]

    handler = Handler()
    queue = queue_of(handler, Doubling(), batch_size=3)
    async with running(queue):
        await queue.put(messages("abc"))
    assert handler.batches == [[*"aabb"], [*"cc"]]


class Hoarding(Hooks):
    """Hooks that hold all back until they are called without a message, or the end comes."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[KeyedMessage] = []

    def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
        if event is not None:
            self.held.append(event)
            return []
        released = self.held
        self.held = []
        return released

    def last_batch_before_close(self) -> list[KeyedMessage]:
        return self.held


async def test_what_a_hook_holds_back_it_may_release_when_queue_time_is_up() -> None:
    """KAFKA-326: the hook is called on every look at the queue, also without a message."""
    handler = Handler()
    queue = queue_of(handler, Hoarding(), queue_time=100, batch_size=1)
    async with running(queue):
        await queue.put(messages("ab"))
        await asyncio.sleep(0.25)
        assert (handler.batches, handler.times_ms) == ([["a", "b"]], [100])


async def test_what_a_hook_held_back_to_the_end_is_sent_behind_the_rest() -> None:
    class HoldingA(Hoarding):
        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
            if event is not None and event.message == "a":
                self.held.append(event)
                return []
            return [] if event is None else [event]

    handler = Handler()
    queue = queue_of(handler, HoldingA())
    async with running(queue):
        await queue.put(messages("abc"))
    assert handler.batches == [["b", "c", "a"]]


async def test_before_enqueue_that_raises_is_the_callers_and_what_was_queued_stays() -> None:
    class RefusingB(CallbackHandler):
        def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
            if event.message == "b":
                raise ValueError("no b")
            return event

    handler = Handler()
    queue = queue_of(handler, RefusingB())
    async with running(queue):
        with pytest.raises(ValueError, match="no b"):
            await queue.put(messages("abc"))
        await queue.put(messages("d"))
    assert handler.batches == [["a", "d"]]


async def test_after_enqueue_that_raises_does_not_undo_what_was_queued() -> None:
    class Raising(CallbackHandler):
        def after_enqueue(self, event: KeyedMessage, added: bool) -> None:
            raise ValueError

    handler = Handler()
    queue = queue_of(handler, Raising())
    async with running(queue):
        await queue.put(messages("ab"))
    assert handler.batches == [["a", "b"]]


async def test_after_dequeuing_that_raises_loses_its_batch_and_no_other() -> None:
    class RaisingAtB(Hooks):
        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> list[KeyedMessage]:
            if event is not None and event.message == "b":
                raise ValueError
            return super().after_dequeuing_existing_data(event)

    handler = Handler()
    hooks = RaisingAtB()
    queue = queue_of(handler, hooks)
    async with running(queue):
        await queue.put(messages("abcd"))
    assert hooks.lost == ["a", "b"]
    assert handler.batches == [["c", "d"]]


async def test_last_batch_before_close_that_raises_does_not_cost_the_rest() -> None:
    class Raising(CallbackHandler):
        def last_batch_before_close(self) -> list[KeyedMessage]:
            raise ValueError

    handler = Handler()
    queue = queue_of(handler, Raising())
    async with running(queue):
        await queue.put(messages("ab"))
    assert handler.batches == [["a", "b"]]


async def test_hook_that_returns_no_list_fails_its_batch_and_is_named() -> None:
    class Forgetful(Hooks):
        def __init__(self) -> None:
            super().__init__()
            self.errors: list[str] = []

        def after_dequeuing_existing_data(self, event: KeyedMessage | None) -> Any:
            return None

        def not_sent(self, events: Sequence[KeyedMessage], error: BaseException) -> None:
            self.errors.append(str(error))

    hooks = Forgetful()
    queue = queue_of(hooks=hooks)
    async with running(queue):
        await queue.put(messages("a"))
    assert hooks.errors == [
        "after_dequeuing_existing_data returned None, which is not a list of messages"
    ]


async def test_handler_with_one_hook_has_the_others_too() -> None:
    class OneHook:
        def before_enqueue(self, event: KeyedMessage) -> KeyedMessage:
            return message("x")

    hooks = with_all_hooks(OneHook())
    assert hooks.before_enqueue(message("a")) == message("x")
    assert hooks.after_dequeuing_existing_data(message("a")) == [message("a")]
    assert hooks.last_batch_before_close() == []
