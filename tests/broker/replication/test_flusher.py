"""Logs are flushed off the loop: one flush at a time, and again while more is due."""

from __future__ import annotations

from typing import Any

import attrs

from broker.handlers import produce
from broker.replication.flusher import FLUSHES_AT_ONCE, Flusher
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
from tests.stage.disk import Disk, turns

T0 = TopicPartition("t", 0)


@attrs.define(eq=False)
class FlushStage:
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
            self.replicas.manager.note_flush(partition)

        self.flusher = Flusher(LogWork(self.disk), self.spawned, lambda: 1, flushed)
        self.replicas.manager.start_flush = self.flusher.start

    async def append(self, value: bytes) -> None:
        self.replicas.manager.append(
            T0, batch(value), all_in_sync=False, zstd_allowed=True, now_ms=1
        )
        await turns()


async def test_what_was_flushed_is_told() -> None:
    stage = FlushStage()
    await stage.append(b"a")
    assert stage.flushed == []
    await stage.disk.run_next()
    assert stage.flushed == [1]


async def test_what_comes_during_a_flush_waits_for_the_next_one() -> None:
    stage = FlushStage()
    await stage.append(b"a")
    await stage.append(b"b")
    await stage.append(b"c")
    assert len(stage.disk.waiting) == 1
    await stage.disk.run_next()
    await stage.disk.run_next()
    assert (stage.flushed, stage.disk.waiting) == ([1, 3], [])
    await stage.spawned.ended()


async def test_when_nothing_is_due_it_rests_until_it_is_started_again() -> None:
    stage = FlushStage()
    await stage.append(b"a")
    await stage.disk.run_next()
    await stage.spawned.ended()
    await stage.append(b"b")
    await stage.disk.run_next()
    assert stage.flushed == [1, 2]


async def test_a_log_whose_flush_fails_takes_no_more_writes() -> None:
    stage = FlushStage()
    await stage.append(b"a")
    await stage.disk.run_next(OSError(5, "Input/output error"))
    await stage.spawned.ended()
    log = stage.replicas.manager.log(T0)
    assert log.failure == "[Errno 5] Input/output error"
    assert log.recovery_point == 0


async def test_a_producer_whose_flush_fails_is_told_so_at_once() -> None:
    stage = FlushStage()
    part = ProduceRequestPartition(index=0, records=batch(b"a"))
    request = ProduceRequest(
        acks=1,
        timeout_ms=60_000,
        topic_data=[ProduceRequestTopic(name="t", partition_data=[part])],
    )
    wait = produce.handle(
        stage.replicas.manager,
        stage.replicas.cache,
        stage.replicas.deferred,
        request,
        context(),
    )
    answers: list[Any] = []
    stage.replicas.purgatory.park(wait, answers.append)
    await turns()
    await stage.disk.run_next(OSError(5, "Input/output error"))
    (answer,) = answers
    (topic,) = answer.responses
    assert topic.partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_of_many_logs_some_are_flushed_at_once_and_none_is_left() -> None:
    number = 3 * FLUSHES_AT_ONCE
    stage = FlushStage(replicas=Replicas(config=LogConfig(flush_messages=1)).lead("t", number))
    for index in range(number):
        stage.replicas.write(TopicPartition("t", index), batch(b"a"))
    await turns()
    assert len(stage.disk.waiting) == FLUSHES_AT_ONCE

    while stage.disk.waiting:
        assert len(stage.disk.waiting) <= FLUSHES_AT_ONCE
        await stage.disk.run_next()
    assert stage.flushed == [1] * number
