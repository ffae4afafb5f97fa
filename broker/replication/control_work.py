"""Obey control requests that take longer than a turn of the loop: one by one, a slice per turn.

A LeaderAndIsr for thousands of partitions is obeyed some partitions at a time. First the disk's
threads create the new logs, and logs that are lent to a thread come back; until then partitions
begin no new role, but those that others lead now end theirs. No request overtakes another: a
request that arrives meanwhile, on any connection, waits for its turn, and only then is checked by
the gate.

The response is sent when the work is done. A controller repeats a request whose response is late.
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
from broker.replication.replica_roles import ReplicaRoles, State
from core_log.log import Log
from core_log.log_dir import LogDir
from core_log.log_work import LogWork
from protocol.errors import ApiError
from protocol.messages import update_metadata
from protocol.messages.leader_and_isr import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    partition_states,
)
from protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse, partitions
from protocol.messages.update_metadata import UpdateMetadataRequest
from protocol.topic_identity import TopicIdentity
from protocol.topic_partition import TopicPartition

PARTITIONS_PER_TURN = 100
"""Partitions that change their roles in one turn of the loop: under 10 ms."""

T = TypeVar("T")
Refusal = Callable[[], Outcome | None]
"""Returns the response to a request that must be refused; None if it must be obeyed."""


@attrs.define(eq=False)
class ControlWork:
    """Obeys the control requests of a broker in order.

    `spawn` starts a task of the broker, `touch` wakes the requests that wait under a key. A wait
    that has lasted `timeout_ms` is renewed.
    """

    roles: ReplicaRoles
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    work: LogWork
    monotonic_ms: Callable[[], int]
    timeout_ms: int
    _turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)
    _unfinished: int = 0

    def lead_and_follow(self, request: LeaderAndIsrRequest, refusal: Refusal) -> Outcome:
        """Obey a LeaderAndIsr; return its response, or a Wait for it."""
        states = partition_states(request)
        is_short = len(states) <= PARTITIONS_PER_TURN
        # Behind unfinished work everything waits: no request overtakes another.
        if self._unfinished or not is_short or self.roles.needs_log_work(states):
            return self._respond_later(partial(self._lead_and_follow, request, refusal))
        return refusal() or self.roles.become_leader_or_follower(request, self.monotonic_ms())

    def stop(self, request: StopReplicaRequest, refusal: Refusal) -> Outcome:
        """Obey a StopReplica; return its response, or a Wait for it."""
        stopped = [TopicPartition(*pair) for pair in partitions(request)]
        is_quick = len(stopped) <= PARTITIONS_PER_TURN and not request.delete_partitions
        # Deletions are work for the disk's threads.
        if self._unfinished or not is_quick or self.roles.has_lent(stopped):
            return self._respond_later(partial(self._stop, request, refusal))
        return refusal() or self.roles.stop_replicas(request)

    def stop_removed(self, request: UpdateMetadataRequest) -> None:
        """Stop the replicas that were removed while no controller could reach this broker."""
        removed = self.roles.find_removed(update_metadata.partition_states(request))
        if removed:
            # A StopReplica is sent once, and to brokers that are registered. Who was not would
            # lead, and coordinate groups, beside its successor (fault groups-9).
            self.roles.stop(removed, delete=False)

    async def _lead_and_follow(self, request: LeaderAndIsrRequest, refusal: Refusal) -> Outcome:
        # Asked when its turn has come: a newer controller may have spoken meanwhile.
        refused = refusal()
        if refused is not None:
            return refused

        # To end a role needs no disk and no ZooKeeper: whoever waits at a leader that is none any
        # more looks for the next one.
        all_states = partition_states(request)
        for states in _slices(all_states):
            if self.roles.resign(states):
                await asyncio.sleep(0)

        # Which topics of these names are they? Mostly that is known.
        unsure = self.roles.find_unsure(all_states)
        if unsure:
            await self.roles.identities.learn(unsure)

        errors = []
        unstamped = []
        for states in _slices(all_states):
            # Prepare the logs. What fails here fails again in `take_states`, which reports it.
            for tp in self.roles.find_left_over(states):
                await self.work.wait_until_returned(self.roles.find_logs([tp]))
                with contextlib.suppress(ApiError):
                    await self.work.in_thread(self.roles.set_aside(tp).run)
            new_logs = self.roles.plan_logs(states)
            if new_logs:
                await self.work.in_thread(partial(self.roles.replicas.logs.make, new_logs))
                self.roles.replicas.logs.serve(new_logs)
            for tp in self.roles.find_damaged(states):
                await self._truncate_damage(tp)

            # Change the roles, when no thread has a log of these partitions.
            await self.work.wait_until_returned(self.roles.find_logs(_names(states)))
            errors += self.roles.take_states(states, self.monotonic_ms())
            unstamped += self.roles.find_unstamped(states)
            await asyncio.sleep(0)

        if unstamped:
            self.spawn(self._stamp(unstamped))
        self.roles.note_leadership()
        return LeaderAndIsrResponse(error_code=0, partition_errors=errors)

    async def _stamp(self, unstamped: Sequence[tuple[LogDir, Log, TopicIdentity]]) -> None:
        """Write identities beside logs that are served: nobody waits for that."""
        for stamps in _slices(unstamped):
            write = partial(self.roles.replicas.logs.write_identities, stamps)
            for log, identity, file in await self.work.in_thread(write):
                log.note_identity(identity, file)

    async def _truncate_damage(self, tp: TopicPartition) -> None:
        """Truncate a damaged log at its damage. If that fails, `take_states` reports it."""
        logs = self.roles.replicas.logs
        with contextlib.suppress(ApiError):
            reopened = await self.work.lend(logs.logs[tp], partial(logs.reopen_without_damage, tp))
            logs.replace_damaged(reopened)

    async def _stop(self, request: StopReplicaRequest, refusal: Refusal) -> Outcome:
        refused = refusal()
        if refused is not None:
            return refused

        errors = []
        for stopped in _slices([TopicPartition(*pair) for pair in partitions(request)]):
            # A log that is lent must be back before it is deleted.
            await self.work.wait_until_returned(self.roles.find_logs(stopped))
            deletions = self.roles.stop(stopped, delete=request.delete_partitions)
            errors += await self.work.in_thread(deletions.run)
        return StopReplicaResponse(error_code=0, partition_errors=errors)

    def _respond_later(self, work: Callable[[], Coroutine[Any, Any, Outcome]]) -> Wait:
        """Do the work of a request when the requests before it are done."""
        done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._unfinished += 1

        async def run() -> None:
            try:
                async with self._turn:
                    done.set_result(await work())
            except Exception as error:
                done.set_exception(error)
                # Mark the exception as retrieved: the controller may be gone.
                done.exception()
            finally:
                self._unfinished -= 1
                assert self._unfinished >= 0
            self.touch(done)

        def try_complete(expired: bool) -> Outcome | None:
            # The work goes on though the time is up, so the wait is renewed.
            if done.done():
                return done.result()
            return wait if expired else None

        self.spawn(run())
        wait = Wait((done,), self.timeout_ms, try_complete)
        return wait


def _names(states: Iterable[State]) -> list[TopicPartition]:
    return [TopicPartition(topic, state.partition_index) for topic, state in states]


def _slices(items: Sequence[T]) -> Iterator[Sequence[T]]:
    for first in range(0, len(items), PARTITIONS_PER_TURN):
        yield items[first : first + PARTITIONS_PER_TURN]
