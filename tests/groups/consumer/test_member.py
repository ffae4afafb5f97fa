"""A living member, at a coordinator that responds as the test says, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Set
from typing import Any

import attrs
import pytest

from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.member import GroupConsumer
from groups.consumer.state import Consumer, ConsumerSettings
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition
from tests.stage.clock import run_in_virtual_time
from tests.stage.waiting import until

ME = "me-1"
TOPIC = "t"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
Partitions = Set[TopicPartition]


@attrs.define(eq=False)
class Desk:
    """A coordinator that gives the member `partitions` in each generation."""

    partitions: frozenset[TopicPartition] = frozenset({P0})
    generation_id: int = 0
    heartbeats: int | None = None
    """The generation of the heartbeats that are sent now."""
    response: Any = None
    """The response to JoinGroup in place of the usual one."""

    errors: list[ErrorCode] = attrs.field(factory=list)
    """What the next JoinGroups end with."""

    async def join(self, effect: do.SendJoin) -> on.JoinResponded:
        if self.errors:
            return on.JoinResponded(effect.round, self.errors.pop(0), "", -1, "", "")
        self.generation_id += 1
        return self.response or on.JoinResponded(
            effect.round, ErrorCode.NONE, ME, self.generation_id, "range", "b-1"
        )

    async def sync(self, effect: do.SendSync) -> on.SyncResponded:
        return on.SyncResponded(effect.round, ErrorCode.NONE, self.partitions)

    async def assign(self, effect: do.ComputeAssignment) -> on.AssignmentComputed:
        raise AssertionError("another member leads")

    async def leave(self, effect: do.SendLeave) -> None: ...

    def begin_heartbeats(self, effect: do.BeginHeartbeats) -> None:
        self.heartbeats = effect.generation_id

    def hasten_heartbeats(self) -> None: ...

    def end_heartbeats(self) -> None:
        self.heartbeats = None

    def forget(self) -> None: ...

    def describe(self) -> str:
        return "broker 2 (host:9092)"


async def nothing() -> None: ...


@attrs.define(eq=False)
class Streams:
    """Streams that know what they deliver; a listener is a coroutine function."""

    delivering: set[TopicPartition] = attrs.field(factory=set)
    failure: Exception | None = None
    is_paused: bool = False
    on_revoked: Callable[[], Awaitable[None]] = nothing
    on_assigned: Callable[[], Awaitable[None]] = nothing

    def stop(self, partitions: Partitions) -> None:
        self.delivering -= partitions

    def open_at(self, offsets: Mapping[TopicPartition, int | None]) -> None: ...

    def fetch_opened(self, partitions: Partitions) -> None:
        self.delivering |= partitions

    def abandon(self) -> None:
        self.delivering.clear()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False

    def fail(self, error: Exception) -> None:
        self.failure = error

    async def forget(self, partitions: Partitions) -> None: ...
    async def commit(self, partitions: Partitions) -> None: ...

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        return dict.fromkeys(partitions, 0), {}

    async def notify_revoked(self, partitions: Partitions) -> None:
        await self.on_revoked()

    async def notify_lost(self, partitions: Partitions) -> None: ...

    async def notify_assigned(self, partitions: Partitions, owned: Partitions) -> None:
        await self.on_assigned()


class Scene:
    def __init__(self, *, is_cooperative: bool = False) -> None:
        self.desk = Desk()
        self.streams = Streams()
        settings = ConsumerSettings("g", ("range",), is_cooperative)
        self.member = GroupConsumer(Consumer(settings), self.desk, self.streams)

    async def join(self) -> None:
        await self.member.join(frozenset({TOPIC}))

    def beat(self, error: ErrorCode) -> None:
        """Let the response to a heartbeat of the present generation arrive."""
        self.member.handle(on.HeartbeatResponded(self.desk.generation_id, ME, error))


def play(scene: Coroutine[Any, Any, None]) -> None:
    run_in_virtual_time(scene)


def test_listener_that_ends_a_task_and_waits_for_it_costs_no_membership(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        worker = asyncio.create_task(asyncio.sleep(3600))

        async def end_worker() -> None:
            worker.cancel()
            await worker

        work.streams.on_revoked = end_worker
        await work.join()
        work.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: worker.cancelled() and work.member.is_settled, "the next generation")
        assert work.desk.heartbeats == 2
        assert work.streams.delivering == {P0}
        await work.member.leave(1.0)

    play(scene())
    assert "the rebalance listener was cancelled" in caplog.text


def test_member_that_is_lost_in_the_turn_after_its_listener_delivers_nothing() -> None:
    async def scene() -> None:
        work = Scene(is_cooperative=True)
        loop = asyncio.get_running_loop()

        async def lose_identity() -> None:
            if work.desk.generation_id == 1:
                work.desk.partitions = frozenset({P1})
                loop.call_soon(work.beat, ErrorCode.UNKNOWN_MEMBER_ID)

        work.streams.on_assigned = lose_identity
        await work.join()
        await until(lambda: work.desk.generation_id == 2 and work.member.is_settled, "its return")
        assert work.streams.delivering == work.member.consumer.owned == {P1}
        await work.member.leave(1.0)

    play(scene())


def test_bug_in_a_member_ends_its_streams_and_its_heartbeats(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        await work.join()
        work.desk.response = object()
        work.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        await until(lambda: work.streams.failure, "the failure")
        assert work.desk.heartbeats is None
        with pytest.raises(KeyError):
            await work.member.leave(1.0)

    with caplog.at_level(logging.ERROR):
        play(scene())
    assert "group g: the member failed" in caplog.text


def test_attempts_to_join_that_fail_alike_are_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        work = Scene()
        work.desk.errors += [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 5
        work.desk.errors += [ErrorCode.NOT_COORDINATOR] * 2
        await work.join()
        await work.member.leave(1.0)

    with caplog.at_level(logging.WARNING):
        play(scene())
    assert [record.getMessage() for record in caplog.records] == [
        "group g: COORDINATOR_LOAD_IN_PROGRESS",
        "group g: NOT_COORDINATOR",
    ]


def test_who_leaves_sends_heartbeats_until_its_listener_has_committed() -> None:
    async def scene() -> None:
        work = Scene()
        await work.join()
        while_committing: list[int | None] = []

        async def commit() -> None:
            while_committing.append(work.desk.heartbeats)

        work.streams.on_revoked = commit
        await work.member.leave(1.0)
        assert while_committing == [1]
        assert work.desk.heartbeats is None

    play(scene())
