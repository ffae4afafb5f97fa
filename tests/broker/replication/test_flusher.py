"""Logs are flushed off the loop: one flush at a time, and again while more is due."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from typing import Any

import attrs

from broker.handlers import produce
from broker.replication.flusher import Flusher
from broker.replication.partition import Partition
from core_log.config import LogConfig
from core_log.log_work import LogWork
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
)
from protocol.topic_partition import TopicPartition
from tests.broker.replication.replicas import Replicas, batch, context
from tests.broker.spawning import Spawned
from tests.stage.threads import as_in_thread

T0 = TopicPartition("t", 0)


class Disk(Executor):
    """A thread pool whose work is run in this thread when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    async def run_next(self, failure: OSError | None = None) -> None:
        """Do the oldest piece of work, or fail it; return when the loop has its result."""
        future, work = self.waiting.pop(0)
        if failure is None:
            as_in_thread(work)
            future.set_result(None)
        else:
            future.set_exception(failure)
        await turns()


@attrs.define(eq=False)
class World:
    """Make a partition that is led here, and flushed at every record."""

    disk: Disk = attrs.field(factory=Disk)
    spawned: Spawned = attrs.field(factory=Spawned)
    replicas: Replicas = attrs.field(
        factory=lambda: Replicas(config=LogConfig(flush_messages=1)).lead("t")
    )
    flushed: list[int] = attrs.field(factory=list)
    flusher: Flusher = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        def flushed(partition: Partition) -> None:
            self.flushed.append(partition.log.recovery_point)
            self.replicas.manager.flushed(partition)

        self.flusher = Flusher(LogWork(self.disk), self.spawned, lambda: 1, flushed)
        self.replicas.manager.start_flush = self.flusher.start

    async def append(self, value: bytes) -> None:
        self.replicas.manager.append(
            T0, batch(value), all_in_sync=False, zstd_allowed=True, now_ms=1
        )
        await turns()


async def turns() -> None:
    """Run all tasks as far as they can go."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_was_flushed_is_told() -> None:
    world = World()
    await world.append(b"a")
    assert world.flushed == []
    await world.disk.run_next()
    assert world.flushed == [1]


async def test_what_comes_during_a_flush_waits_for_the_next_one() -> None:
    world = World()
    await world.append(b"a")
    await world.append(b"b")
    await world.append(b"c")
    assert len(world.disk.waiting) == 1
    await world.disk.run_next()
    await world.disk.run_next()
    assert (world.flushed, world.disk.waiting) == ([1, 3], [])
    await world.spawned.ended()


async def test_when_nothing_is_due_it_rests_until_it_is_started_again() -> None:
    world = World()
    await world.append(b"a")
    await world.disk.run_next()
    await world.spawned.ended()
    await world.append(b"b")
    await world.disk.run_next()
    assert world.flushed == [1, 2]


async def test_a_log_whose_flush_fails_takes_no_more_writes() -> None:
    world = World()
    await world.append(b"a")
    await world.disk.run_next(OSError(5, "Input/output error"))
    await world.spawned.ended()
    log = world.replicas.manager.log(T0)
    assert log.failure == "[Errno 5] Input/output error"
    assert log.recovery_point == 0


async def test_a_producer_whose_flush_fails_is_told_so_at_once() -> None:
    world = World()
    part = ProduceRequestPartition(index=0, records=batch(b"a"))
    request = ProduceRequest(
        acks=1,
        timeout_ms=60_000,
        topic_data=[ProduceRequestTopic(name="t", partition_data=[part])],
    )
    wait = produce.handle(
        world.replicas.manager,
        world.replicas.cache,
        world.replicas.deferred,
        request,
        context(),
    )
    answers: list[Any] = []
    world.replicas.purgatory.park(wait, answers.append)
    await turns()
    await world.disk.run_next(OSError(5, "Input/output error"))
    (answer,) = answers
    (topic,) = answer.responses
    assert topic.partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
