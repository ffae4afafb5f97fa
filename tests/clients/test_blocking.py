"""The blocking twin of a small asyncio class, and of a real client."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, get_origin

import pytest

from clients.blocking import BlockingConnector, Producer, twin
from clients.errors import (
    ClientClosed,
    ConsumerRebalanceFailed,
    DeadlineExceeded,
    ProducerClosed,
    StreamInUse,
)
from clients.high_level.connector import ConsumerConnector
from clients.high_level.streams import Chunk, MessageStream, PartitionFeed
from clients.serializers import bytes_decoder
from clients.shared_close import SharedClose
from protocol.settings import SettingError
from protocol.topic_partition import TopicPartition
from tests.stage.waiting import block_until
from zk.memory import MemoryZooKeeper
from zk.znodes import TopicAssignment

P0 = TopicPartition("t", 0)
PATIENCE_S = 20.0


class Counter:
    """A class with all that a client can have: calls, futures, streams, state, class methods."""

    def __init__(self, first: int = 0) -> None:
        if first < 0:
            raise ValueError("negative")
        self.count = first
        self.closed = False
        self.loop = asyncio.get_running_loop()

    @classmethod
    async def starting_at(cls, first: int) -> "Counter":
        await asyncio.sleep(0)
        return cls(first)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.closed = True

    async def add(self, n: int) -> int:
        await asyncio.sleep(0)
        if n < 0:
            raise ValueError(f"negative {n}")
        self.count += n
        return self.count

    async def later(self, n: int) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self.loop.create_future()
        self.loop.call_soon(future.set_result, n)
        return future

    async def refused(self) -> asyncio.Future[int]:
        future: asyncio.Future[int] = self.loop.create_future()
        self.loop.call_soon(future.set_exception, ValueError("no"))
        return future

    async def streams(self) -> dict[str, list[AsyncIterator[int]]]:
        async def numbers() -> AsyncIterator[int]:
            for n in range(3):
                await asyncio.sleep(0)
                yield n

        return {"t": [numbers(), numbers()]}

    def run(self, function: Callable[[], object]) -> object:
        return function()

    def now(self) -> threading.Thread:
        return threading.current_thread()


BlockingCounter = twin(Counter)


@pytest.fixture
def counter() -> Any:
    with BlockingCounter(5) as made:
        yield made


def test_call_blocks_and_returns_or_raises_as_the_original(counter: Any) -> None:
    assert counter.add(2) == 7
    with pytest.raises(ValueError, match="negative -1"):
        counter.add(-1)
    assert counter.count == 7


def test_plain_method_runs_on_the_loops_thread(counter: Any) -> None:
    assert counter.now() is not threading.current_thread()


def test_asyncio_future_becomes_a_concurrent_one(counter: Any) -> None:
    future = counter.later(9)
    assert isinstance(future, concurrent.futures.Future)
    assert future.result(timeout=5) == 9
    with pytest.raises(ValueError, match="no"):
        counter.refused().result(timeout=5)


def test_streams_inside_a_result_become_iterators(counter: Any) -> None:
    first, second = counter.streams()["t"]
    assert list(first) == [0, 1, 2]
    assert next(second) == 0


def test_class_method_makes_a_twin() -> None:
    with BlockingCounter.starting_at(3) as counter:
        assert counter.add(1) == 4


def test_closing_closes_the_original_and_ends_the_thread() -> None:
    before = {*threading.enumerate()}
    counter = BlockingCounter()
    original = counter._original
    counter.close()
    assert original.closed
    assert {*threading.enumerate()} <= before


def test_constructor_that_raises_leaves_no_thread() -> None:
    before = {*threading.enumerate()}
    with pytest.raises(ValueError, match="negative"):
        BlockingCounter(-1)
    with pytest.raises(SettingError):
        Producer({"bootstrap.servers": "nowhere"})
    assert {*threading.enumerate()} <= before


def test_many_threads_share_a_twin(counter: Any) -> None:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(counter.add, [1] * 100))
    assert counter.count == 105


class Reader:
    """A connector with streams only: messages without end until `shutdown`."""

    def __init__(self, count: int = 1) -> None:
        self.message_streams = [MessageStream(bytes_decoder, bytes_decoder) for _ in range(count)]
        self.feeds = [PartitionFeed(P0, stream, 0) for stream in self.message_streams]
        self.turns = 0
        for stream in self.message_streams:
            stream._on_room = partial(asyncio.get_running_loop().call_soon, self.fill)

    async def __aenter__(self) -> Self:
        self.fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    def fill(self) -> None:
        self.turns += 1
        for feed in self.feeds:
            if feed.stream.has_room:
                start = feed.fetch_offset or 0
                rows = [(offset, -1, None, b"x", ()) for offset in range(start, start + 100)]
                feed.stream.put(Chunk(feed, start, start + 100, rows))
                feed.fetch_offset = start + 100

    @property
    def streams(self) -> dict[str, list[MessageStream]]:
        return {"t": self.message_streams}

    async def position(self) -> int | None:
        return self.feeds[0].position

    async def silence(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def shutdown(self) -> None:
        for stream in self.message_streams:
            stream.end()
        await asyncio.sleep(0)

    close = shutdown


BlockingReader = twin(Reader)


def test_a_message_of_a_blocking_stream_counts_when_the_next_is_asked_for() -> None:
    with BlockingReader() as reader:
        (stream,) = reader.streams["t"]
        positions = []
        for expected in range(250):
            assert next(stream).offset == expected
            positions.append(reader.position())
        assert positions == list(range(250))


def test_a_list_of_a_blocking_stream_counts_when_the_next_is_asked_for() -> None:
    with BlockingReader() as reader:
        (stream,) = reader.streams["t"]
        batches = stream.batches()
        taken = []
        for position in range(0, 500, 100):
            taken += [message.offset for message in next(batches)]
            assert reader.position() == position
        assert next(stream).offset == 500
        assert reader.position() == 500
        assert taken == [*range(500)]
        assert [message.offset for message in next(batches)] == [*range(501, 600)]
    assert list(batches) == []


def test_a_blocking_stream_calls_its_loop_for_a_turn_of_messages_and_not_for_each() -> None:
    with BlockingReader() as reader:
        (stream,) = reader.streams["t"]
        begun = 0
        begin_turn = stream._original.begin_turn

        async def counted() -> bool:
            nonlocal begun
            begun += 1
            return bool(await begin_turn())

        stream._original.begin_turn = counted
        assert [next(stream).offset for _ in range(10_000)] == list(range(10_000))
        assert begun < 2000


def test_a_stream_has_one_twin_however_it_is_reached() -> None:
    with BlockingReader() as reader:
        assert reader.streams["t"][0] is reader.streams["t"][0]


def test_a_second_thread_on_a_stream_is_told_so() -> None:
    with BlockingReader() as reader:
        (stream,) = reader.streams["t"]
        with stream._in_use, pytest.raises(StreamInUse):
            next(stream)

        # Lists are asked for on the loop, where the original knows who waits.
        stream._original._in_use = True
        with pytest.raises(StreamInUse):
            next(stream.batches())
        stream._original._in_use = False
        assert next(stream).offset == 0


@pytest.mark.parametrize("work_s", [0.0, 0.0002, 0.02])
def test_threads_that_iterate_streams_end_when_another_closes_their_connector(
    work_s: float,
) -> None:
    def iterate(stream: Any) -> str:
        for _ in stream:
            if work_s:
                time.sleep(work_s)
        return "ended"

    before = {*threading.enumerate()}
    for _ in range(20):
        reader = BlockingReader(8)
        with ThreadPoolExecutor(8) as pool:
            with reader:
                ends = [pool.submit(iterate, stream) for stream in reader.streams["t"]]
                next(iter(reader.streams["t"]))
            assert [end.result(PATIENCE_S) for end in ends] == ["ended"] * 8
    assert {*threading.enumerate()} <= before


@pytest.mark.parametrize("by_name", ["close", "shutdown"])
def test_closing_by_each_of_its_names_ends_the_thread_and_may_be_repeated(by_name: str) -> None:
    before = {*threading.enumerate()}
    reader = BlockingReader()
    reader.__enter__()
    getattr(reader, by_name)()
    getattr(reader, by_name)()
    assert {*threading.enumerate()} <= before


def test_after_the_close_iterations_are_over_and_calls_say_so() -> None:
    with BlockingReader() as reader:
        (stream,) = reader.streams["t"]
        next(stream)
    assert list(stream) == []
    with pytest.raises(ClientClosed):
        reader.position()
    assert reader.streams["t"] == [stream]


def test_a_call_that_is_under_way_when_another_thread_closes_says_so() -> None:
    reader = BlockingReader()
    with ThreadPoolExecutor(2) as pool:
        began = threading.Event()

        def wait() -> None:
            began.set()
            reader.silence()

        waiting = pool.submit(wait)
        began.wait(PATIENCE_S)
        reader.close()
        with pytest.raises(ClientClosed):
            waiting.result(PATIENCE_S)


def test_a_call_on_the_loops_own_thread_is_refused_and_not_waited_for_ever(counter: Any) -> None:
    with pytest.raises(RuntimeError, match="own loop"):
        counter.run(lambda: counter.add(1))


class Member(ConsumerConnector):
    """A sole member of a group in a ZooKeeper in memory, without brokers."""

    def __init__(self) -> None:
        settings = {"group.id": "g", "zookeeper.connect": "z:1"}
        self.session = MemoryZooKeeper(lambda: 0).session()
        super().__init__(settings, zk=self.session)

    async def __aenter__(self) -> Self:
        await self.session.start()
        topic = TopicAssignment({0: (0,)}).encode()
        await self.session.create(TopicAssignment.path("t"), topic, make_parents=True)
        return self


BlockingMember = twin(Member, BlockingConnector)


class Listener:
    """A listener that calls the blocking connector."""

    def __init__(self, connector: Any) -> None:
        self.connector = connector
        self.outcomes: list[str] = []

    def before_releasing_partitions(self, partition_ownership: Any) -> None:
        self.connector.commit_offsets()
        self.outcomes.append("committed")

    def before_starting_fetchers(self, consumer_id: str, assignment: Any) -> None:
        self.connector.shutdown()
        self.outcomes.append("does not wait for its own end")


def test_a_listener_may_call_its_blocking_connector_and_even_end_it() -> None:
    before = {*threading.enumerate()}
    connector = BlockingMember()
    connector.__enter__()
    listener = Listener(connector)
    connector.set_consumer_rebalance_listener(listener)
    with contextlib.suppress(ClientClosed, ConsumerRebalanceFailed):  # it left too soon
        connector.create_message_streams({"t": 1})
    connector.shutdown()
    assert listener.outcomes == ["committed", "does not wait for its own end"]
    for thread in {*threading.enumerate()} - before:
        thread.join(PATIENCE_S)
    assert {*threading.enumerate()} <= before
    with pytest.raises(ClientClosed):
        connector.commit_offsets()


@pytest.mark.fault("strangers-155")
def test_sending_to_a_producer_that_is_closed_says_so() -> None:
    with Producer({"bootstrap.servers": "localhost:1"}) as producer:
        pass
    with pytest.raises(ProducerClosed):
        producer.send("t", b"x")
    with pytest.raises(ProducerClosed):
        producer.send_and_wait("t", b"x")
    with pytest.raises(ProducerClosed):
        producer.send_many("t", [b"x"])
    with pytest.raises(ProducerClosed):
        producer.flush()
    producer.close()


@pytest.mark.fault("strangers-175")
@pytest.mark.parametrize("timeout_ms", ["5000", -1, float("nan"), True])
def test_a_close_with_an_impossible_time_is_refused_and_closes_nothing(timeout_ms: Any) -> None:
    with Producer({"bootstrap.servers": "localhost:1"}) as producer:
        with pytest.raises((TypeError, ValueError), match=r"^timeout_ms .* must "):
            producer.close(timeout_ms)
        assert producer._loop.is_running


@pytest.mark.fault("strangers-173")
def test_a_thread_with_the_number_of_a_loop_that_ended_is_not_its_own() -> None:
    with Producer({"bootstrap.servers": "localhost:1"}) as producer:
        pass
    producer._loop._thread._ident = threading.get_ident()  # type: ignore[attr-defined]
    with pytest.raises(ProducerClosed):
        producer.flush()


def test_a_twin_shows_plain_attributes_and_the_futures_of_threads() -> None:
    with Producer({"bootstrap.servers": "localhost:1"}) as producer:
        assert {"metrics", "config", "send", "close"} <= {*dir(producer)}
    returned = inspect.signature(Producer.send_many).return_annotation
    assert get_origin(returned) is concurrent.futures.Future


@pytest.mark.fault("strangers-163")
def test_callbacks_of_two_producers_send_with_each_other_and_wait_for_neither() -> None:
    settings = {"bootstrap.servers": "localhost:1", "max.block.ms": 300}
    with Producer(settings) as producer, Producer(settings) as other:
        with pytest.raises(DeadlineExceeded):
            producer.send("t", b"waits")
        crossed: list[concurrent.futures.Future[Any]] = []

        async def send_with_other() -> None:
            crossed.append(other.send("t", b"from a callback"))

        producer._loop.call(send_with_other())
        with pytest.raises(DeadlineExceeded):
            crossed[0].result(PATIENCE_S)


@pytest.mark.fault("strangers-162")
def test_a_callback_that_ends_its_thread_closes_the_client(counter: Any) -> None:
    def leave() -> None:
        raise SystemExit(3)

    counter.loop.call_soon_threadsafe(leave)
    block_until(lambda: not counter._loop.is_running, "the thread has ended")
    with pytest.raises(ClientClosed):
        counter.add(1)
    counter.close()


class OnceClosed:
    """A class with a close that its callers share."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = asyncio.Event()
        self.ended = False
        self.closing = SharedClose("close")

    async def close(self) -> None:
        await self.closing.join(self._close)

    async def _close(self) -> None:
        self.begun.set()
        await self.may_end.wait()
        self.ended = True

    async def let_go(self) -> None:
        self.may_end.set()


class SlowlyClosed:
    """A class whose first close waits for `let_go`, and whose others fail."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = asyncio.Event()
        self.ended = False

    async def close(self) -> None:
        if self.begun.is_set():
            raise ValueError("not twice")
        self.begun.set()
        await self.may_end.wait()
        self.ended = True

    async def let_go(self) -> None:
        self.may_end.set()


@pytest.mark.fault("scale-C1")
def test_a_thread_whose_close_fails_leaves_the_loop_to_another_that_closes() -> None:
    before = {*threading.enumerate()}
    slow = twin(SlowlyClosed)()
    original = slow._original
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(slow.close)
        assert original.begun.wait(PATIENCE_S)
        with pytest.raises(ValueError, match="not twice"):
            slow.close()
        slow.let_go()
        first.result(PATIENCE_S)
    assert original.ended
    assert {*threading.enumerate()} <= before


def interrupt_close(slow: Any) -> None:
    """Close, and interrupt that as Ctrl-C does when it has begun."""
    main = threading.get_ident()
    interrupted = threading.Event()

    def interrupt() -> None:
        assert slow._original.begun.wait(PATIENCE_S)
        # One that comes right before the thread waits for a lock is noted, and wakes nobody.
        while not interrupted.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            interrupted.wait(0.05)

    def raise_once(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    handler = signal.signal(signal.SIGINT, raise_once)
    try:
        with ThreadPoolExecutor(1) as pool:
            interruption = pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                slow.close()
            interruption.result(PATIENCE_S)
    finally:
        signal.signal(signal.SIGINT, handler)


@pytest.mark.fault("scale-C1")
def test_a_close_that_is_interrupted_goes_on_for_the_next_one() -> None:
    slow = twin(OnceClosed)()
    interrupt_close(slow)
    slow.let_go()
    slow.close()
    assert slow._original.ended, "the loop has ended under the close"


@pytest.mark.fault("scale-C1")
def test_a_close_that_is_interrupted_ends_the_loop_when_it_is_done() -> None:
    before = {*threading.enumerate()}
    slow = twin(OnceClosed)()
    interrupt_close(slow)
    slow.let_go()
    # The loop's thread, and the one that ends it, which is listed before it has started.
    while new := {*threading.enumerate()} - before:
        for thread in new:
            if thread.ident is not None:
                thread.join(PATIENCE_S)
    assert slow._original.ended


def is_waiting(producer: Any) -> bool:
    """Whether a thread waits until its record is buffered."""
    tasks = asyncio.all_tasks(producer._loop._loop)
    return any("Handover._buffer_behind" in repr(task.get_coro()) for task in tasks)


@pytest.mark.fault("scale-C1")
def test_a_close_with_a_time_does_not_wait_for_room_in_the_buffer() -> None:
    # No broker: a record waits for the metadata of its topic, for max.block.ms.
    producer = Producer({"bootstrap.servers": "localhost:1", "max.block.ms": 5000})
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(producer.send, "t", b"x")
        block_until(lambda: is_waiting(producer), "the call waits")
        producer.close(timeout_ms=0)
        with pytest.raises(ProducerClosed):
            sending.result(PATIENCE_S)
