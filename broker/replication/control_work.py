"""Control requests that take longer than a turn of the loop: one after the other, a slice a turn.

A LeaderAndIsr for thousands of partitions is obeyed some partitions at a time. The logs of those
that are new are made by the disk's threads first, and a log that is lent to one has to be back;
until then partitions are what they were before. Nothing overtakes: what comes meanwhile, on
whatever connection, waits for its turn, and only then is asked whether it is still to be obeyed.

There is no answer before the work is done: a controller sends again what is not answered in time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs

from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from broker.replication.replica_manager import ReplicaManager, State
from core_log.log_work import LogWork
from protocol.errors import ApiError
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    partition_states,
)
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse, partitions
from protocol.topic_partition import TopicPartition

PARTITIONS_A_TURN = 100
"""Partitions that become led, followed or stopped in one turn: under 10 ms."""

T = TypeVar("T")
Refusal = Callable[[], Outcome | None]
"""The answer to a request that is not to be obeyed, None for one that is."""


@attrs.define(eq=False)
class ControlWork:
    """`spawn` runs a task of the broker, `touch` wakes what waits; what is not done after
    `timeout_ms` is waited for again."""

    replicas: ReplicaManager
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    work: LogWork
    monotonic_ms: Callable[[], int]
    timeout_ms: int
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _unfinished: int = 0

    def lead_and_follow(self, request: LeaderAndIsrRequest, refusal: Refusal) -> Outcome:
        """Obey a LeaderAndIsr: its response, or a Wait for it."""
        states = partition_states(request)
        is_short = len(states) <= PARTITIONS_A_TURN
        if self._unfinished or not is_short or self.replicas.waits_for_logs(states):
            return self._answer(partial(self._lead_and_follow, request, refusal))
        return refusal() or self.replicas.become_leader_or_follower(request, self.monotonic_ms())

    def stop(self, request: StopReplicaRequest, refusal: Refusal) -> Outcome:
        """Obey a StopReplica: its response, or a Wait for it."""
        named = [TopicPartition(*pair) for pair in partitions(request)]
        is_quick = len(named) <= PARTITIONS_A_TURN and not request.delete_partitions
        if self._unfinished or not is_quick or self.replicas.has_lent(named):
            return self._answer(partial(self._stop, request, refusal))
        return refusal() or self.replicas.stop_replicas(request)

    async def _lead_and_follow(self, request: LeaderAndIsrRequest, refusal: Refusal) -> Outcome:
        refused = refusal()
        if refused is not None:
            return refused
        errors = []
        for states in _slices(partition_states(request)):
            for tp in self.replicas.left_over(states):
                with contextlib.suppress(ApiError):  # `take_states` says why
                    await self.work.in_thread(self.replicas.delete_left_over(tp))
            new_logs = self.replicas.plan_logs(states)
            if new_logs:
                await self.work.in_thread(partial(self.replicas.logs.make, new_logs))
                self.replicas.logs.serve(new_logs)
            for tp in self.replicas.damaged(states):
                await self._cut_damage(tp)
            await self.work.wait_until_returned(self.replicas.known_logs(_names(states)))
            errors += self.replicas.take_states(states, self.monotonic_ms())
            await asyncio.sleep(0)
        self.replicas.know_leadership()
        return LeaderAndIsrResponse(error_code=0, partition_errors=errors)

    async def _cut_damage(self, tp: TopicPartition) -> None:
        """Cut a damaged log at its damage; where that fails `take_states` says why."""
        logs = self.replicas.logs
        with contextlib.suppress(ApiError):
            whole = await self.work.lend(logs.logs[tp], partial(logs.reopen_without_damage, tp))
            logs.replace_damaged(whole)

    async def _stop(self, request: StopReplicaRequest, refusal: Refusal) -> Outcome:
        refused = refusal()
        if refused is not None:
            return refused
        errors = []
        for some in _slices([TopicPartition(*pair) for pair in partitions(request)]):
            await self.work.wait_until_returned(self.replicas.known_logs(some))
            deletions = self.replicas.stop(some, delete=request.delete_partitions)
            errors += await self.work.in_thread(deletions.run)
        return StopReplicaResponse(error_code=0, partition_errors=errors)

    def _answer(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> Wait:
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._unfinished += 1

        async def run() -> None:
            try:
                async with self._turn:
                    done.set_result(await work())
            except Exception as error:
                done.set_exception(error)
                done.exception()  # seen: the controller may be gone
            finally:
                self._unfinished -= 1
            self.touch(done)

        def try_complete(expired: bool) -> Outcome | None:
            if done.done():
                return done.result()
            return wait if expired else None

        self.spawn(run())
        wait = Wait((done,), self.timeout_ms, try_complete)
        return wait


def _names(states: Iterable[State]) -> list[TopicPartition]:
    return [TopicPartition(topic, state.partition_index) for topic, state in states]


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), PARTITIONS_A_TURN):
        yield items[first : first + PARTITIONS_A_TURN]
