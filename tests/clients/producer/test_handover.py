"""Records from threads reach a producer in order, many at a time, and none is lost."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any, cast

import pytest

from clients.errors import DeadlineExceeded, ProducerClosed
from clients.loop_thread import LoopThread
from clients.producer.deliveries import RecordMetadata
from clients.producer.handover import MOST_QUEUED, Handover
from clients.producer.producer import Producer
from clients.producer.sent_record import SentRecord

PATIENCE_S = 20.0


class Buffer:
    """A producer that keeps its records in `taken`, unless `gate` is closed."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.records = self  # its encoder
        self.gate = asyncio.Event()
        self.gate.set()
        self._has_partitioner = False
        self.gone: dict[str, asyncio.Event] = {}
        self.room = 10**9
        self.failure: Exception | None = None

    def encode(self, topic: str, value: Any, *rest: Any) -> tuple[Any, ...]:
        if not isinstance(value, bytes):
            raise TypeError(f"not bytes: {value!r}")
        return topic, *rest, value, len(value)

    def _is_ready_for(self, record: tuple[Any, ...], ahead_bytes: int = 0) -> bool:
        return ahead_bytes + int(record[-1]) <= self.room and record[0] not in self.gone

    def _lacks_partition(self, record: tuple[Any, ...]) -> bool:
        return record[0] == "narrow"

    async def _buffer_record(self, record: tuple[Any, ...], delivery: Any) -> Any:
        _, error = await self._buffer_all([record], [delivery])
        if error is not None:
            raise error
        return delivery

    async def _buffer_all(
        self,
        records: list[tuple[Any, ...]],
        deliveries: list[Any],
        *,
        waits_for_partitions: bool = True,
    ) -> tuple[int, Exception | None]:
        for number, record in enumerate(records):
            if record[0] in self.gone:
                if not waits_for_partitions:
                    return number, None
                await self.gone[record[0]].wait()
            await self.gate.wait()
            if self.failure:
                return number, self.failure
            self.taken.append(record[-2])
            deliveries[number].set_result(len(self.taken))
        return len(records), None


class Scene:
    def __init__(self) -> None:
        self.loop = LoopThread("handover")
        self.buffer = self.loop.call(self._make())
        self.handover = Handover(cast(Producer, self.buffer), self.loop.start)

    async def _make(self) -> Buffer:
        return Buffer()

    def send(self, value: Any, topic: str = "t") -> "Future[Any]":
        return self.handover.send(topic, value, None, None, (), None)

    def on_the_loop(self, function: Any) -> None:
        async def call() -> None:
            function()

        self.loop.call(call())

    def wait_until_buffered(self) -> None:
        self.loop.call(self.handover.wait_until_buffered())


@pytest.fixture
def work() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.loop.stop()
    scene.handover.close()


def test_records_are_buffered_in_the_order_of_the_calls(work: Scene) -> None:
    deliveries = [work.send(b"%d" % i) for i in range(5000)]
    assert [delivery.result(PATIENCE_S) for delivery in deliveries] == list(range(1, 5001))
    assert work.buffer.taken == [b"%d" % i for i in range(5000)]


def test_each_thread_keeps_its_order(work: Scene) -> None:
    def send_all(name: int) -> None:
        for i in range(1000):
            work.send(b"%d %d" % (name, i))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send_all, range(4)))
    work.wait_until_buffered()
    for name in range(4):
        own = [value for value in work.buffer.taken if value.startswith(b"%d " % name)]
        assert own == [b"%d %d" % (name, i) for i in range(1000)]


def test_who_sends_does_not_wait_for_the_loop_while_there_is_room(work: Scene) -> None:
    work.on_the_loop(work.buffer.gate.clear)
    deliveries = [work.send(b"x") for _ in range(100)]
    assert not any(delivery.done() for delivery in deliveries)
    work.on_the_loop(work.buffer.gate.set)
    assert [delivery.result(PATIENCE_S) for delivery in deliveries] == list(range(1, 101))


@pytest.mark.parametrize("full", ["of bytes", "of records", "for a partitioner"])
def test_who_sends_waits_where_the_producer_would_and_behind_what_came_before(
    work: Scene, full: str
) -> None:
    work.on_the_loop(work.buffer.gate.clear)
    work.buffer.room = 10**9 if full == "of records" else 3
    before = MOST_QUEUED if full == "of records" else 3
    for _ in range(before):
        work.send(b"x")
    work.buffer._has_partitioner = full == "for a partitioner"
    sent: list[Future[Any]] = []
    waiting = threading.Thread(target=lambda: sent.append(work.send(b"last")))
    waiting.start()
    work.on_the_loop(work.buffer.gate.set)
    waiting.join(PATIENCE_S)
    assert sent[0].result(PATIENCE_S) == before + 1
    assert work.buffer.taken[-1] == b"last"


@pytest.mark.fault("strangers-138")
def test_who_waits_for_a_topic_keeps_nobody_else_waiting(work: Scene) -> None:
    there = work.buffer.gone["late"] = asyncio.Event()
    sent: list[Future[Any]] = []
    waiting = threading.Thread(target=lambda: sent.append(work.send(b"last", "late")))
    waiting.start()
    work.wait_until_buffered()
    assert [work.send(b"%d" % i).result(PATIENCE_S) for i in range(100)] == [*range(1, 101)]
    assert waiting.is_alive()
    work.on_the_loop(there.set)
    waiting.join(PATIENCE_S)
    assert sent[0].result(PATIENCE_S) == 101


@pytest.mark.fault("strangers-138")
def test_records_whose_topic_is_gone_when_they_are_taken_wait_in_a_line_of_their_own(
    work: Scene,
) -> None:
    work.on_the_loop(work.buffer.gate.clear)
    work.send(b"first")
    gone = [work.send(b"gone %d" % i, "gone") for i in range(3)]
    kept = [work.send(b"kept %d" % i) for i in range(3)]
    there = asyncio.Event()
    work.on_the_loop(lambda: work.buffer.gone.update(gone=there))
    work.on_the_loop(work.buffer.gate.set)
    for delivery in kept:
        delivery.result(PATIENCE_S)
    assert not any(delivery.done() for delivery in gone)

    # Those of a thread keep their order, also one that comes when the topic is there again.
    flushed = work.loop.start(work.handover.wait_until_buffered())
    work.on_the_loop(there.set)
    work.on_the_loop(work.buffer.gone.clear)
    assert work.send(b"gone 3", "gone").result(PATIENCE_S) == 8
    flushed.result(PATIENCE_S)
    assert work.buffer.taken[-4:] == [b"gone %d" % i for i in range(4)]


@pytest.mark.fault("strangers-138")
def test_those_who_have_waited_as_long_for_a_topic_fail_together(work: Scene) -> None:
    work.on_the_loop(work.buffer.gate.clear)
    work.send(b"first")
    gone = [work.send(b"gone %d" % i, "gone") for i in range(3)]
    there = asyncio.Event()
    work.on_the_loop(lambda: work.buffer.gone.update(gone=there))
    work.on_the_loop(work.buffer.gate.set)
    work.loop.call(work.handover.wait_until_taken())
    work.buffer.failure = DeadlineExceeded("too late")
    work.on_the_loop(there.set)
    for delivery in gone:
        with pytest.raises(DeadlineExceeded):
            delivery.result(PATIENCE_S)


def test_a_callback_of_a_record_sends_without_waiting(work: Scene) -> None:
    there = asyncio.Event()
    work.on_the_loop(lambda: work.buffer.gone.update(late=there))
    sent: Future[list[Future[Any]]] = Future()

    def send_both(_: object) -> None:
        send = partial(work.handover.send, may_wait=False)
        sent.set_result([send(topic, b"", None, None, (), None) for topic in ("late", "t")])

    work.on_the_loop(lambda: work.send(b"first").add_done_callback(send_both))
    late, other = sent.result(PATIENCE_S)
    assert other.result(PATIENCE_S) == 2
    assert not late.done()
    work.on_the_loop(there.set)
    assert late.result(PATIENCE_S) == 3


@pytest.mark.fault("strangers-164")
def test_a_partition_that_is_not_there_keeps_no_others_of_its_topic_waiting(work: Scene) -> None:
    there = asyncio.Event()
    work.on_the_loop(lambda: work.buffer.gone.update(narrow=there))
    sent: Future[Future[Any]] = Future()

    def send_apart(_: object) -> None:
        sent.set_result(work.handover.send("narrow", b"", None, 77, (), None, may_wait=False))

    work.on_the_loop(lambda: work.send(b"first").add_done_callback(send_apart))
    apart = sent.result(PATIENCE_S)
    work.wait_until_buffered()
    assert not apart.done()
    work.buffer.failure = DeadlineExceeded("too late")
    work.on_the_loop(there.set)
    with pytest.raises(DeadlineExceeded):
        apart.result(PATIENCE_S)


def test_what_can_be_told_at_once_is_raised_by_the_call(work: Scene) -> None:
    with pytest.raises(TypeError, match="not bytes: 5"):
        work.send(5)
    work.buffer.room = 0
    work.buffer.failure = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        work.send(b"x")


def test_what_fails_of_a_record_that_was_queued_is_in_its_future(work: Scene) -> None:
    work.buffer.failure = ValueError("no")
    with pytest.raises(ValueError, match="no"):
        work.send(b"x").result(PATIENCE_S)


def test_what_a_loop_that_ends_has_not_taken_fails_and_is_counted(
    work: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    work.on_the_loop(work.buffer.gate.clear)
    deliveries = [work.send(b"x") for _ in range(10)]
    work.loop.stop()
    work.handover.close()
    for delivery in deliveries:
        with pytest.raises(ProducerClosed):
            delivery.result(PATIENCE_S)
    assert caplog.messages == ["10 records were not sent when the producer closed"]
    with pytest.raises(ProducerClosed):
        work.send(b"x")


def test_a_sent_record_is_a_future_to_threads_that_wait_and_to_callbacks() -> None:
    metadata = RecordMetadata("t", 0, 5, -1)
    waited_for, called_for, done_before = SentRecord(), SentRecord(), SentRecord()
    called: list[Any] = []
    called_for.add_done_callback(called.append)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(waited_for.result, PATIENCE_S)
        for sent in (waited_for, called_for, done_before):
            assert not sent.done()
            assert not sent.cancel()
            sent.set_result(metadata)
        assert waiting.result(PATIENCE_S) == metadata

    assert called == [called_for]

    done_before.add_done_callback(called.append)
    assert called == [called_for, done_before]
    assert done_before.done()
    assert done_before.exception() is None
    assert done_before.result(0) == metadata
    assert wait([waited_for, called_for, done_before], 0).not_done == set()


def test_a_sent_record_that_failed_raises() -> None:
    sent = SentRecord()
    sent.set_exception(ValueError("no"))
    assert sent.done()
    with pytest.raises(ValueError, match="no"):
        sent.result(0)
