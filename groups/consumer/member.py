"""A living member of a group at a coordinator: it performs what `decide` wants done.

One runner task performs the ordered effects one after the other and brings back their results as
events. Timers and heartbeats bring the others. `decide` is called for each event at once, on the
event loop. The streams are behind `Delivery`, the coordinator behind `Coordinator`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from contextvars import ContextVar
from typing import Any, Protocol

import attrs

from groups.consumer import effects as do
from groups.consumer import events as on
from groups.consumer.decide import decide
from groups.consumer.member_failed import MemberFailed
from groups.consumer.refusals import explain_fencing, explain_strategies
from groups.consumer.state import Consumer, Phase
from groups.event_timers import EventTimers
from protocol.api_key import ApiKey
from protocol.errors import ApiError, ErrorCode, KgroupError
from protocol.needs import missing_right
from protocol.state_checks import STATE_CHECKS
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

Partitions = Set[TopicPartition]

_LISTENER_CALL: ContextVar[object] = ContextVar("group_listener_call", default=None)
"""The call of a rebalance listener in which the current task was started, if any."""


class Coordinator(Protocol):
    """The group's coordinator, as a member sees it. Calls raise KgroupError if it is away."""

    async def join(self, effect: do.SendJoin) -> on.JoinResponded:
        """Send JoinGroup; the response comes when all members have joined."""

    async def sync(self, effect: do.SendSync) -> on.SyncResponded:
        """Send SyncGroup; the response comes when the leader has assigned."""

    async def assign(self, effect: do.ComputeAssignment) -> on.AssignmentComputed:
        """Share out the partitions of all topics among the members, off the loop."""

    async def leave(self, effect: do.SendLeave) -> None:
        """Send LeaveGroup."""

    def begin_heartbeats(self, effect: do.BeginHeartbeats) -> None:
        """Send heartbeats with this identity until told otherwise."""

    def hasten_heartbeats(self) -> None:
        """Send the next heartbeats soon."""

    def end_heartbeats(self) -> None:
        """Send no more heartbeats."""

    def forget(self) -> None:
        """Look for the coordinator before the next call."""

    def describe(self) -> str:
        """Name the broker that is the coordinator, or was it last."""


class GroupDelivery(Protocol):
    """The streams, as their member sees them.

    A plain function takes effect before it returns: no message of a stopped partition is handed out
    afterwards.
    """

    def stop(self, partitions: Partitions) -> None:
        """Stop fetching, and delete what is queued; the position stays until `forget`."""

    def open_at(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set the positions; None: auto.offset.reset decides. Nothing is fetched yet."""

    def fetch_opened(self, partitions: Partitions) -> None:
        """Fetch and deliver partitions that are open still."""

    def abandon(self) -> None:
        """`stop` and `forget` everything."""

    def pause(self) -> None:
        """Hand out no message until `resume`."""

    def resume(self) -> None:
        """Hand out messages again."""

    def fail(self, error: Exception) -> None:
        """Raise `error` from every stream: no message will come."""

    async def forget(self, partitions: Partitions) -> None:
        """Forget the positions, and return when no commit of them is in flight."""

    async def commit(self, partitions: Partitions) -> None:
        """Commit positions. Log a failure and do not raise it: the next owner consumes again."""

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        """Return committed offsets, and the reason for each that cannot be read now."""

    async def notify_revoked(self, partitions: Partitions) -> None:
        """Call the application's rebalance listener: these partitions are still ours."""

    async def notify_lost(self, partitions: Partitions) -> None:
        """Call the application's rebalance listener: these partitions are others' already."""

    async def notify_assigned(self, partitions: Partitions, owned: Partitions) -> None:
        """Call the application's rebalance listener: these partitions are ours now."""


@attrs.define(eq=False)
class GroupConsumer:
    """A member that joins once and leaves once."""

    consumer: Consumer
    coordinator: Coordinator
    delivery: GroupDelivery
    on_problem: Callable[[str | None], None] = lambda problem: None
    """Gets what keeps the member from being settled; None when nothing does."""
    on_rebalance: Callable[[], None] = lambda: None
    """Called when the member has settled in a generation."""
    _queue: asyncio.Queue[do.Ordered | None] = attrs.field(factory=asyncio.Queue)
    _timers: EventTimers = attrs.field(init=False)
    _runner: asyncio.Task[None] | None = None
    _settled: asyncio.Future[None] | None = None
    _call: asyncio.Task[on.Event | None] | None = None
    """The call of the coordinator that waits for its response."""
    _leave_by_s: float | None = None
    _last_problem: str | None = None
    _login_error: Exception | None = None
    """Why no broker lets this member in."""
    _listener_call: object = None

    def __attrs_post_init__(self) -> None:
        self._timers = EventTimers(self.handle)

    # ---- life

    async def join(self, topics: frozenset[str]) -> None:
        """Join, and return when the first assignment is delivered. Raises MemberFailed."""
        assert self._settled is None, "a member joins once"
        self._settled = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._run(), name=f"member of {self.group_id}")
        self.handle(on.TopicsRead(topics))
        await self._settled

    async def leave(self, patience_s: float) -> None:
        """Commit (if auto.commit is on), and leave; within `patience_s` and the listener's time."""
        if self._runner is None:
            return
        if self._leave_by_s is None:
            self._leave_by_s = _now_s() + patience_s
            self.handle(on.Shutdown())
            self._queue.put_nowait(None)

        runner = self._runner
        await asyncio.wait({runner})
        if self._runner is None:
            return
        self._runner = None
        self._timers.cancel_all()
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(
                MemberFailed(ErrorCode.NONE, f"group {self.group_id}: left before it had joined")
            )
        # A bug in the runner ends here, with the application.
        if not runner.cancelled():
            runner.result()

    @property
    def group_id(self) -> str:
        """Return the group's id."""
        return self.consumer.settings.group_id

    @property
    def is_settled(self) -> bool:
        """Return whether all that is assigned is delivered."""
        return self.consumer.phase is Phase.STABLE

    @property
    def is_called_by_listener(self) -> bool:
        """True if the caller is the application's rebalance listener, or a task it has started."""
        return self._listener_call is not None and _LISTENER_CALL.get() is self._listener_call

    # ---- events

    def handle(self, event: on.Event) -> None:
        """Decide, perform the urgent effects, and queue the others."""
        logger.debug("group %s: %s", self.group_id, event)
        self.consumer, effects = decide(self.consumer, event)
        if STATE_CHECKS.is_on:
            STATE_CHECKS.run(self.consumer.check)

        for effect in effects:
            if perform := _URGENT.get(type(effect)):
                perform(self, effect)
            else:
                self._queue.put_nowait(effect)  # type: ignore[arg-type]

    # ---- urgent effects

    def _abandon(self, effect: do.Abandon) -> None:
        # What was to be revoked is lost: the application hears of it all the same.
        lost: set[TopicPartition] = set()
        while not self._queue.empty():
            waiting = self._queue.get_nowait()
            if isinstance(waiting, do.NotifyRevoked | do.NotifyLost):
                lost |= waiting.partitions
            elif waiting is None:
                # The end of the queue stays.
                self._queue.put_nowait(None)
                break
        if lost:
            self._queue.put_nowait(do.NotifyLost(frozenset(lost)))
        self.delivery.abandon()
        self._interrupt()

    def _interrupt(self, effect: do.Interrupt | None = None) -> None:
        if self._call is not None:
            self._call.cancel()

    def _begin_heartbeats(self, effect: do.BeginHeartbeats) -> None:
        self.coordinator.begin_heartbeats(effect)

    def _hasten_heartbeats(self, effect: do.HastenHeartbeats) -> None:
        self.coordinator.hasten_heartbeats()

    def _forget_coordinator(self, effect: do.ForgetCoordinator) -> None:
        self.coordinator.forget()

    def _pause(self, effect: do.PauseDelivery) -> None:
        self.delivery.pause()

    def _resume(self, effect: do.ResumeDelivery) -> None:
        self.delivery.resume()
        # Whoever has read of the pause looks for its end.
        logger.warning(
            "group %s: member %s is accepted by %s; messages are delivered again",
            self.group_id,
            self.consumer.member_id,
            self.coordinator.describe(),
        )

    def _set_timer(self, effect: do.SetTimer) -> None:
        self._timers.set(effect.event, effect.after_ms)

    def _fail(self, effect: do.Fail) -> None:
        explanation = self._explain(effect.error)
        if effect.reason:
            explanation = f"group {self.group_id}: {effect.reason}"
        failure: Exception = MemberFailed(effect.error, explanation)
        # The broker's own words say more.
        if self._login_error is not None:
            failure = self._login_error
        logger.error("%s", failure)
        self.delivery.fail(failure)
        self.on_problem(str(failure))
        if self._settled is not None and not self._settled.done():
            self._settled.set_exception(failure)

    def _explain(self, error: ErrorCode) -> str:
        """Return the user's words for an error after which there is no place in the group."""
        if error is ErrorCode.FENCED_INSTANCE_ID:
            return explain_fencing(self.group_id, self.consumer.settings.group_instance_id)
        if error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            return explain_strategies(self.group_id, self.consumer.settings.strategies)
        text = f"group {self.group_id}: {error.name}: {error.meaning}"
        right = missing_right(ApiKey.JOIN_GROUP, error)
        return f"{text.removesuffix('.')}; ask for {right}" if right else text

    def _report(self, effect: do.Report) -> None:
        # Ten attempts a second may end in the same way for long.
        if effect.problem not in (None, self._last_problem):
            logger.warning("group %s: %s", self.group_id, effect.problem)
        self._note_problem(effect.problem)

    def _note_problem(self, problem: str | None) -> None:
        self._last_problem = problem
        self.on_problem(problem)

    # ---- effects in order

    async def _run(self) -> None:
        try:
            while effect := await self._queue.get():
                if event := await self._perform(effect):
                    self.handle(event)
        except Exception as error:
            # A bug. Readers must not wait for ever, nor others for our partitions.
            logger.exception("group %s: the member failed", self.group_id)
            self.coordinator.end_heartbeats()
            self.delivery.fail(error)
            if self._settled is not None and not self._settled.done():
                self._settled.set_exception(error)
            raise

    async def _perform(self, effect: do.Ordered) -> on.Event | None:
        """Perform one effect. Every failure ends in an event, so that the member goes on."""
        if type(effect) in _LISTENER_CALLS:
            # The application's listener has all the time that it takes.
            await _ORDERED[type(effect)](self, effect)
            return None
        try:
            # In this very turn of the loop: what is abandoned in the next one has not begun.
            if perform := _AT_ONCE.get(type(effect)):
                perform(self, effect)
                return None
            return await self._perform_in_time(effect)
        except (KgroupError, ApiError) as error:
            reason = f"{_name(effect)}: {error}"
            refusal = getattr(error, "code", ErrorCode.NONE)
            if refusal is ErrorCode.SASL_AUTHENTICATION_FAILED:
                self._login_error = error
        except Exception as error:
            logger.exception("group %s: %s failed", self.group_id, _name(effect))
            reason = f"{_name(effect)}: {error!r}"
            refusal = ErrorCode.NONE

        # Each failed call has its event, from which `decide` goes on.
        if isinstance(effect, do.ComputeAssignment):
            return on.AssignmentComputed(effect.round, problem=reason)
        if isinstance(effect, do.FetchOffsets):
            return on.OffsetsFetched(effect.round, {}, dict.fromkeys(effect.partitions, reason))
        if isinstance(effect, do.SendJoin | do.SendSync):
            return on.CallFailed(effect.round, reason, refusal)
        logger.warning("group %s: %s", self.group_id, reason)
        return None

    async def _perform_in_time(self, effect: do.Ordered) -> on.Event | None:
        """Perform one effect, unless an interruption or the end of the patience comes first."""
        call = asyncio.ensure_future(_ORDERED[type(effect)](self, effect))
        self._call = call if type(effect) in _INTERRUPTIBLE else None
        try:
            async with asyncio.timeout_at(self._leave_by_s):
                return await call
        except TimeoutError:
            logger.warning("group %s: leaves without %s", self.group_id, _name(effect))
            return None
        except asyncio.CancelledError:
            # Ours, or the whole runner's?
            if not call.cancelled() or _is_cancelled():
                raise
            return None
        finally:
            call.cancel()
            self._call = None

    async def _send_join(self, effect: do.SendJoin) -> on.Event:
        return await self.coordinator.join(effect)

    async def _send_sync(self, effect: do.SendSync) -> on.Event:
        return await self.coordinator.sync(effect)

    async def _assign(self, effect: do.ComputeAssignment) -> on.Event:
        return await self.coordinator.assign(effect)

    async def _send_leave(self, effect: do.SendLeave) -> None:
        await self.coordinator.leave(effect)

    def _end_heartbeats(self, effect: do.EndHeartbeats) -> None:
        self.coordinator.end_heartbeats()

    def _stop(self, effect: do.StopFetchers) -> None:
        self.delivery.stop(effect.partitions)

    async def _commit(self, effect: do.CommitPositions) -> None:
        await self.delivery.commit(effect.partitions)

    async def _forget(self, effect: do.ForgetPositions) -> None:
        await self.delivery.forget(effect.partitions)

    async def _fetch_offsets(self, effect: do.FetchOffsets) -> on.Event:
        offsets, failed = await self.delivery.fetch_offsets(effect.partitions)
        return on.OffsetsFetched(effect.round, offsets, failed)

    def _open(self, effect: do.OpenFeeds) -> None:
        self.delivery.open_at(effect.starts)

    def _start(self, effect: do.StartFetchers) -> None:
        self.delivery.fetch_opened(effect.partitions)

    async def _notify_revoked(self, effect: do.NotifyRevoked) -> None:
        await self._call_listener(lambda: self.delivery.notify_revoked(effect.partitions))

    async def _notify_lost(self, effect: do.NotifyLost) -> None:
        await self._call_listener(lambda: self.delivery.notify_lost(effect.partitions))

    async def _notify_assigned(self, effect: do.NotifyAssigned) -> None:
        logger.info(
            "group %s: generation %d: %d partitions, new are %s",
            self.group_id,
            self.consumer.generation_id,
            len(effect.owned),
            ", ".join(map(str, sorted(effect.partitions))) or "none",
        )
        await self._call_listener(
            lambda: self.delivery.notify_assigned(effect.partitions, effect.owned)
        )

    def _settle(self, effect: do.Settle) -> None:
        self._note_problem(None)
        self.on_rebalance()
        if self._settled is not None and not self._settled.done():
            self._settled.set_result(None)

    async def _call_listener(self, listener: Callable[[], Awaitable[None]]) -> None:
        """Call the application's listener. If it fails, log that and go on rebalancing."""
        began_s = _now_s()
        # Tasks that the listener starts inherit the mark, and so are known as its own.
        self._listener_call = object()
        token = _LISTENER_CALL.set(self._listener_call)
        try:
            await listener()
        except asyncio.CancelledError:
            # It may be that of a task which the listener has ended and waits for.
            if _is_cancelled():
                raise
            logger.exception("group %s: the rebalance listener was cancelled", self.group_id)
        except Exception:
            logger.exception("group %s: the rebalance listener failed", self.group_id)
        finally:
            self._listener_call = None
            _LISTENER_CALL.reset(token)

        # The listener's time does not count as ours.
        if self._leave_by_s is not None:
            self._leave_by_s += _now_s() - began_s


def _name(effect: do.Ordered) -> str:
    """Return the effect for people: `SendJoin` is "send join"."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(effect).__name__).lower()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _is_cancelled() -> bool:
    """Return whether somebody cancels the current task, and not what it waits for."""
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0


# Calls of the application: nothing interrupts them.
_LISTENER_CALLS: Sequence[type[do.Ordered]] = (
    do.NotifyRevoked,
    do.NotifyLost,
    do.NotifyAssigned,
)
# Calls whose response means nothing to a member that leaves, or has lost its identity.
_INTERRUPTIBLE: Sequence[type[do.Ordered]] = (
    do.SendJoin,
    do.SendSync,
    do.ComputeAssignment,
    do.FetchOffsets,
)
_URGENT: dict[type[do.Effect], Callable[[GroupConsumer, Any], None]] = {
    do.Abandon: GroupConsumer._abandon,
    do.Interrupt: GroupConsumer._interrupt,
    do.BeginHeartbeats: GroupConsumer._begin_heartbeats,
    do.HastenHeartbeats: GroupConsumer._hasten_heartbeats,
    do.ForgetCoordinator: GroupConsumer._forget_coordinator,
    do.PauseDelivery: GroupConsumer._pause,
    do.ResumeDelivery: GroupConsumer._resume,
    do.SetTimer: GroupConsumer._set_timer,
    do.Fail: GroupConsumer._fail,
    do.Report: GroupConsumer._report,
}
_AT_ONCE: dict[type[do.Ordered], Callable[[GroupConsumer, Any], None]] = {
    do.EndHeartbeats: GroupConsumer._end_heartbeats,
    do.StopFetchers: GroupConsumer._stop,
    do.OpenFeeds: GroupConsumer._open,
    do.StartFetchers: GroupConsumer._start,
    do.Settle: GroupConsumer._settle,
}
_ORDERED: dict[type[do.Ordered], Callable[[GroupConsumer, Any], Awaitable[on.Event | None]]] = {
    do.SendJoin: GroupConsumer._send_join,
    do.SendSync: GroupConsumer._send_sync,
    do.ComputeAssignment: GroupConsumer._assign,
    do.SendLeave: GroupConsumer._send_leave,
    do.CommitPositions: GroupConsumer._commit,
    do.NotifyRevoked: GroupConsumer._notify_revoked,
    do.NotifyLost: GroupConsumer._notify_lost,
    do.ForgetPositions: GroupConsumer._forget,
    do.FetchOffsets: GroupConsumer._fetch_offsets,
    do.NotifyAssigned: GroupConsumer._notify_assigned,
}
