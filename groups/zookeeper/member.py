"""A living member of a ZooKeeper group: it performs what `membership.decide` wants done.

One runner task performs the effects one after the other and brings back their results as events;
watches, timers and changes of the session's state bring the others. `decide` is called for each
event at once, on the event loop. The streams are behind `Delivery`, ZooKeeper behind `GroupTree`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Set
from contextvars import ContextVar
from typing import Any, Protocol

import attrs

from groups.event_timers import EventTimers
from groups.group_event import GroupEvent
from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership import decide
from groups.zookeeper.membership_errors import (
    ConsumerIdInUse,
    ConsumerRebalanceFailed,
    MalformedMember,
    MembershipLost,
    StrategyConflict,
)
from groups.zookeeper.membership_state import Membership, Phase
from groups.zookeeper.rebalance_history import RebalanceHistory
from groups.zookeeper.registration import describe_missing
from groups.zookeeper.tree import GroupTree
from protocol.state_checks import STATE_CHECKS
from protocol.topic_partition import TopicPartition
from zk.api import ConnectionLoss, SessionState, WatchEvent, ZkError

logger = logging.getLogger(__name__)

Partitions = Set[TopicPartition]

_LISTENER_CALL: ContextVar[object] = ContextVar("listener_call", default=None)
"""The call of a rebalance listener in which the current task was started, if any."""

LEAVE_PATIENCE_S = 8.0
"""Bound on all that a member does when it leaves. A process that is asked to stop usually has 10 s,
and what is left behind vanishes with its session."""

LEAVE_PAUSE_S = 0.1
MOST_NAMED = 3


class Delivery(Protocol):
    """The streams, as their member sees them.

    A plain function takes effect before it returns: no message of a stopped partition is handed out
    afterwards.
    """

    def stop(self, partitions: Partitions) -> None:
        """Stop fetching, and delete what is queued; the position stays until `forget`."""

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        """Continue these partitions, at their positions, on other threads."""

    def open(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        """Set the positions of partition -> (thread id, offset). Nothing is fetched yet.

        Offset None: auto.offset.reset decides.
        """

    def fetch_opened(self, partitions: Partitions) -> None:
        """Fetch and deliver partitions that are open still."""

    def pause(self) -> None:
        """Hand out and commit nothing until `resume`."""

    def resume(self) -> None:
        """Undo `pause`."""

    def abandon(self) -> None:
        """`stop` and `forget` everything."""

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

    async def before_releasing(self, owned: Partitions) -> None:
        """Call the application's rebalance listener."""

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None:
        """Call the application's rebalance listener."""

    async def notify_revoked(self, partitions: Partitions) -> None:
        """Call the application's rebalance listener."""

    async def notify_lost(self, partitions: Partitions) -> None:
        """Call the application's rebalance listener."""

    async def notify_assigned(self, partitions: Partitions) -> None:
        """Call the application's rebalance listener."""


@attrs.define(eq=False)
class Member:
    """A member that joins once and leaves once. Its caller closes the ZooKeeper session."""

    tree: GroupTree
    delivery: Delivery
    membership: Membership
    rng: random.Random = attrs.field(factory=lambda: random.Random(random.random()))
    on_problem: Callable[[str | None], None] = lambda error: None
    """Gets what keeps the group from being settled; None when nothing does."""
    on_rebalance: Callable[[float], None] = lambda took_ms: None
    """Called for each round that changed something, with its duration from the reading on."""
    on_failure: Callable[[], None] = lambda: None
    """Called for each step that failed; it is tried again."""
    on_group_event: Callable[[GroupEvent], None] = lambda event: None
    """Gets each rebalance of the group that is ours to write down."""
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """The wall clock, for such events."""
    _history: RebalanceHistory = attrs.field(init=False)
    _round_began_ms: int = 0
    # The queue of ordered effects, and the task that performs them.
    _queue: asyncio.Queue[do.Ordered | None] = attrs.field(factory=asyncio.Queue)
    _timers: EventTimers = attrs.field(init=False)
    _runner: asyncio.Task[None] | None = None
    _first_rebalance: asyncio.Future[None] | None = None
    _patience: asyncio.Timeout | None = None
    """The bound on the effect that is being performed, unless that calls the listener."""
    _is_reading: bool = False
    _unread: Set[TopicPartition] = frozenset()
    """The partitions whose offsets could not be read when they were last asked for."""
    _missing: str = ""
    """What the group, as it was last read, lacks for this member."""

    # The end, on the loop's clock.
    _leaves_since_s: float = 0.0
    _leave_by_s: float | None = None
    _listener_call: object = None
    """Stands for the call of the listener that has not returned yet."""

    def __attrs_post_init__(self) -> None:
        self._timers = EventTimers(self._handle_event)
        self._history = RebalanceHistory(self.tree.group_id)

    async def join(self) -> None:
        """Register, and return when the first rebalance has ended.

        Raises ConsumerIdInUse and StrategyConflict, after which this member is out of the group;
        ConsumerRebalanceFailed and its subclass MalformedMember, after which it keeps trying;
        MembershipLost.
        """
        assert self._first_rebalance is None, "a member joins once"
        self._first_rebalance = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._run(), name=f"member {self.consumer_id}")

        zk = self.tree.zk
        zk.add_state_listener(self._session_changed)

        # What the session is already, it does not report again.
        if zk.state in (SessionState.CONNECTED, SessionState.CLOSED):
            self._session_changed(zk.state)
        await self._first_rebalance

    async def leave(self, patience_s: float = LEAVE_PATIENCE_S) -> None:
        """Commit (if auto.commit.enable), release, unregister.

        It takes at most `patience_s`, and the time that the application's listener takes. It may be
        called again; if an earlier call was cancelled, that waits for the end.
        """
        if self._runner is None:
            return

        # The first call starts to leave.
        if self._leave_by_s is None:
            self._leaves_since_s = _now_s()
            self._leave_by_s = self._leaves_since_s + patience_s
            self._handle_event(on.Shutdown())
            self._queue.put_nowait(None)

        # Every call waits. A cancellation is for the caller, and not for the runner.
        runner = self._runner
        await asyncio.wait({runner})
        if self._runner is None:
            return
        self._runner = None

        # The first that has waited cleans up.
        self.tree.zk.remove_state_listener(self._session_changed)
        self.tree.unwatch()
        self._timers.cancel_all()

        # Nobody else ends a `join` that still waits.
        if self._first_rebalance and not self._first_rebalance.done():
            reason = f"{self.consumer_id} has left before its first rebalance was done"
            self._first_rebalance.set_exception(ConsumerRebalanceFailed(reason))

        # A bug in the runner ends here, with the application.
        if not runner.cancelled():
            runner.result()

    @property
    def is_called_by_listener(self) -> bool:
        """True if the caller is the application's rebalance listener, or a task it has started.

        It is False again when the call of the listener has returned.
        """
        return self._listener_call is not None and _LISTENER_CALL.get() is self._listener_call

    @property
    def consumer_id(self) -> str:
        """Name of our node under `ids`."""
        return self.membership.consumer_id

    @property
    def is_settled(self) -> bool:
        """True if the last round ended with all that the assignment gives us."""
        return self.membership.phase is Phase.SETTLED

    # --- events -------------------------------------------------------------------------------

    def _monotonic_ms(self) -> int:
        return int(_now_s() * 1000)

    def _handle_event(self, event: on.Event) -> None:
        """Decide, perform the urgent effects, and queue the others."""
        logger.debug("%s: %s", self.consumer_id, event)
        self.membership, effects = decide(self.membership, event, self._monotonic_ms())
        if STATE_CHECKS.is_on:
            STATE_CHECKS.run(self.membership.check)

        for effect in effects:
            if perform := _URGENT.get(type(effect)):
                perform(self, effect)
            else:
                self._queue.put_nowait(effect)  # type: ignore[arg-type]

        if group_event := self._history.note(self.membership, self.now_ms()):
            self.on_group_event(group_event)

    def _session_changed(self, state: SessionState) -> None:
        zk = self.tree.zk
        if state is SessionState.CONNECTED:
            self._handle_event(on.SessionEstablished(zk.session_id))
        elif state is SessionState.SUSPENDED:
            # The lease counts from the last answer: the loss may be noticed long after.
            since_ms = zk.suspended_since_ms or self._monotonic_ms()
            self._handle_event(on.Suspended(since_ms, zk.session_timeout_ms))
        elif state is SessionState.EXPIRED:
            logger.warning("%s: the ZooKeeper session has expired", self.consumer_id)
            self._handle_event(on.SessionLost())
        elif state is SessionState.CLOSED:
            self._handle_event(on.SessionClosed())

    def _group_changed(self, event: WatchEvent) -> None:
        self._handle_event(on.GroupChanged())

    def _topics_changed(self, event: WatchEvent) -> None:
        self._handle_event(on.TopicsChanged())

    def _brokers_changed(self, event: WatchEvent) -> None:
        self._handle_event(on.BrokersChanged())

    def _owner_changed(self, event: WatchEvent) -> None:
        self._handle_event(on.OwnerChanged())

    # --- urgent effects -----------------------------------------------------------------------

    def _abandon(self, effect: do.Abandon) -> None:
        # What was decided in this session must not be done in the next. What was to be revoked is
        # lost: the application hears of it all the same.
        lost: set[TopicPartition] = set()
        while not self._queue.empty():
            waiting = self._queue.get_nowait()
            if isinstance(waiting, do.NotifyRevoked | do.NotifyLost):
                lost |= waiting.partitions
        if lost:
            self._queue.put_nowait(do.NotifyLost(frozenset(lost)))
        self.delivery.abandon()
        self._interrupt()

    def _interrupt(self, effect: do.Interrupt | None = None) -> None:
        if self._patience is None:
            return
        if self._is_reading:
            # A read ends at once, a write of a member that leaves at the bound for leaving.
            self._patience.reschedule(0)
        elif self._leave_by_s is not None:
            self._patience.reschedule(self._leave_by_s)

    def _fail(self, effect: do.FailDelivery) -> None:
        self.delivery.fail(MembershipLost(effect.reason))

    def _pause(self, effect: do.PauseDelivery) -> None:
        logger.warning("%s: delivery pauses: ZooKeeper does not answer", self.consumer_id)
        self.delivery.pause()

    def _resume(self, effect: do.ResumeDelivery) -> None:
        self.delivery.resume()

    def _set_timer(self, effect: do.SetTimer) -> None:
        # Spread: members that saw the same change must not all read at once.
        delay_ms = effect.at_ms - self._monotonic_ms() + self.rng.uniform(0, effect.spread_ms)
        self._timers.set(effect.event, delay_ms)

    def _report(self, effect: do.Report) -> None:
        if effect.error:
            logger.error("%s: %s", self.consumer_id, effect.error)
        self.on_problem(effect.error)

        # The first report ends `join`.
        if self._first_rebalance is None or self._first_rebalance.done():
            return
        if effect.failure is None:
            self._first_rebalance.set_result(None)
        else:
            self._first_rebalance.set_exception(_EXCEPTIONS[effect.failure](effect.error))

    # --- effects in order ---------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while effect := await self._queue.get():
                if event := await self._perform(effect):
                    self._handle_event(event)
        except Exception as error:
            # A bug: readers must not wait for ever.
            logger.exception("%s: the member failed", self.consumer_id)
            self.delivery.fail(error)
            if self._first_rebalance and not self._first_rebalance.done():
                self._first_rebalance.set_exception(error)
            raise

    async def _perform(self, effect: do.Ordered) -> on.Event | None:
        """Perform one effect. Every failure ends in an event, so that the member goes on."""
        try:
            if type(effect) in _CALLS:
                # The application's listener has all the time that it takes.
                return await _ORDERED[type(effect)](self, effect)
            return await self._perform_in_time(effect)
        except ZkError as error:
            reason = f"{type(effect).__name__}: {error!r}"
            logger.warning("%s: %s", self.consumer_id, reason)
        except Exception as error:
            reason = f"{type(effect).__name__}: {error!r}"
            logger.exception("%s: %s", self.consumer_id, reason)

        # Each failed effect has its event, from which `decide` goes on.
        self.on_failure()
        if isinstance(effect, do.Register):
            return on.RegistrationFailed(effect.session_id, reason)
        if isinstance(effect, do.ReleaseOwners):
            return on.ReleaseFailed(effect.round, reason)
        return on.RoundFailed(getattr(effect, "round", self.membership.round), reason)

    async def _perform_in_time(self, effect: do.Ordered) -> on.Event | None:
        """Perform one effect, unless `_interrupt` or the end of the patience comes first.

        A read may take as long as brokers and ZooKeeper are away. A member that leaves, or has lost
        its session, does not wait for it. A member that leaves waits for writes until
        `_leave_by_s`.
        """
        self._is_reading = type(effect) in _READS

        # A member that leaves has no use for what a read would bring.
        if self._is_reading and self.membership.phase is Phase.CLOSED:
            return None

        patience = self._patience = asyncio.timeout_at(self._leave_by_s)
        try:
            async with patience:
                return await _ORDERED[type(effect)](self, effect)
        except TimeoutError:
            # It is a time-out of the effect's own, and so a failure.
            if not patience.expired():
                raise
            # A read that was interrupted needs no word: its round has ended.
            if not self._is_reading:
                logger.warning("%s: leaves without %s", self.consumer_id, type(effect).__name__)
            return None
        finally:
            self._patience = None

    async def _register(self, effect: do.Register) -> on.Event:
        holder = await self.tree.register()
        if holder is None:
            return on.Registered(effect.session_id)
        reason = f"consumer id {self.consumer_id} is in use by session {holder:#x}"
        return on.RegistrationFailed(effect.session_id, reason, in_use=True)

    async def _read_group(self, effect: do.ReadGroup) -> on.Event:
        self._round_began_ms = self._monotonic_ms()
        group = await self.tree.read_group(
            self._group_changed, self._topics_changed, self._brokers_changed
        )
        if isinstance(group, on.GroupProblem):
            return on.GroupUnreadable(effect.round, group)
        self._note_missing(group)
        return on.GroupRead(effect.round, group)

    def _note_missing(self, group: on.GroupSnapshot) -> None:
        """Log what this member waits for, once: without partitions it would be silent for ever."""
        subscription = self.tree.subscription
        topics = subscription.streams_of(group.all_topics, self.tree.exclude_internal_topics)
        missing = describe_missing(
            subscription, {topic: len(group.partitions.get(topic, ())) for topic in topics}
        )
        if missing and missing != self._missing:
            logger.warning("%s: %s", self.consumer_id, missing)
        self._missing = missing

    async def _read_owners(self, effect: do.ReadOwners) -> on.Event:
        return on.OwnersRead(effect.round, await self.tree.read_owners(effect.partitions))

    async def _release(self, effect: do.ReleaseOwners) -> None:
        await self.tree.release(effect.partitions)

    async def _claim(self, effect: do.ClaimOwners) -> on.Event:
        if await self.tree.claim(effect.create, effect.move):
            return on.Claimed(effect.round)
        return on.ClaimFailed(effect.round)

    async def _watch_owners(self, effect: do.WatchOwners) -> on.Event | None:
        if await self.tree.watch_owners(effect.partitions, self._owner_changed):
            return on.OwnerChanged()
        return None

    async def _leave(self, effect: do.LeaveGroup) -> None:
        """Release and unregister; try for as long as the session may live.

        The session can be shared, and then nobody else deletes our nodes.
        """
        zk = self.tree.zk
        session_id = zk.session_id
        ends_ms = self._monotonic_ms() + zk.session_timeout_ms

        while True:
            try:
                return await self.tree.release(effect.partitions, unregister=True)
            except ConnectionLoss:
                # With the session its nodes are gone too.
                if zk.session_id != session_id or self._monotonic_ms() >= ends_ms:
                    raise
            await asyncio.sleep(LEAVE_PAUSE_S)

    async def _stop(self, effect: do.StopFetchers) -> None:
        self.delivery.stop(effect.partitions)

    async def _commit(self, effect: do.CommitPositions) -> None:
        await self.delivery.commit(effect.partitions)

    async def _forget(self, effect: do.ForgetPositions) -> None:
        await self.delivery.forget(effect.partitions)

    async def _fetch_offsets(self, effect: do.FetchOffsets) -> on.Event:
        offsets, failed = await self.delivery.fetch_offsets(effect.partitions)
        if failed:
            self.on_failure()
        self._note_unread(failed)
        return on.OffsetsFetched(effect.round, offsets, failed)

    def _note_unread(self, failed: Mapping[TopicPartition, str]) -> None:
        """Log which offsets cannot be read, once, and when all can be again."""
        # It is tried again every few seconds, for as long as brokers are away.
        if failed.keys() == self._unread:
            return
        self._unread = frozenset(failed)
        texts = [f"offset of {partition}: {failed[partition]}" for partition in sorted(failed)]
        if len(texts) > MOST_NAMED:
            texts[MOST_NAMED:] = [f"and of {len(texts) - MOST_NAMED} more"]
        text = "; ".join(texts) or "all offsets can be read again"
        logger.warning("%s: %s", self.consumer_id, text)

    async def _move(self, effect: do.MoveFetchers) -> None:
        self.delivery.move(effect.threads)

    async def _open(self, effect: do.OpenFeeds) -> None:
        self.delivery.open(effect.starts)

    async def _start(self, effect: do.StartFetchers) -> None:
        self.delivery.fetch_opened(effect.partitions)

    async def _notify_releasing(self, effect: do.NotifyReleasing) -> None:
        await self._call_listener(lambda: self.delivery.before_releasing(effect.owned))

    async def _notify_starting(self, effect: do.NotifyStarting) -> None:
        await self._call_listener(lambda: self.delivery.before_starting(effect.assignment))
        self.on_rebalance(self._monotonic_ms() - self._round_began_ms)

    async def _notify_revoked(self, effect: do.NotifyRevoked) -> None:
        await self._call_listener(lambda: self.delivery.notify_revoked(effect.partitions))

    async def _notify_lost(self, effect: do.NotifyLost) -> None:
        await self._call_listener(lambda: self.delivery.notify_lost(effect.partitions))

    async def _notify_assigned(self, effect: do.NotifyAssigned) -> None:
        await self._call_listener(lambda: self.delivery.notify_assigned(effect.partitions))

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
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            logger.exception("%s: the rebalance listener was cancelled", self.consumer_id)
        except Exception:
            logger.exception("%s: the rebalance listener failed", self.consumer_id)
        finally:
            self._listener_call = None
            _LISTENER_CALL.reset(token)

        # The listener's time does not count as ours.
        if self._leave_by_s is not None:
            self._leave_by_s += _now_s() - max(began_s, self._leaves_since_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


_EXCEPTIONS: dict[do.FailureKind, type[Exception]] = {
    do.FailureKind.RETRIES: ConsumerRebalanceFailed,
    do.FailureKind.ID_IN_USE: ConsumerIdInUse,
    do.FailureKind.UNREADABLE: MalformedMember,
    do.FailureKind.STRATEGY: StrategyConflict,
    do.FailureKind.SESSION_CLOSED: MembershipLost,
}
# Calls of the application: nothing interrupts them.
_CALLS = {
    *(do.NotifyReleasing, do.NotifyStarting),
    *(do.NotifyRevoked, do.NotifyLost, do.NotifyAssigned),
}
# May be broken off, as the next round looks again; LeaveGroup removes a registration that stands.
_READS = {do.Register, do.ReadGroup, do.ReadOwners, do.WatchOwners, do.FetchOffsets}
_URGENT: dict[type[do.Effect], Callable[[Member, Any], None]] = {
    do.Abandon: Member._abandon,
    do.Interrupt: Member._interrupt,
    do.FailDelivery: Member._fail,
    do.PauseDelivery: Member._pause,
    do.ResumeDelivery: Member._resume,
    do.SetTimer: Member._set_timer,
    do.Report: Member._report,
}
_ORDERED: dict[type[do.Effect], Callable[[Member, Any], Awaitable[on.Event | None]]] = {
    do.Register: Member._register,
    do.ReadGroup: Member._read_group,
    do.ReadOwners: Member._read_owners,
    do.ReleaseOwners: Member._release,
    do.ClaimOwners: Member._claim,
    do.WatchOwners: Member._watch_owners,
    do.LeaveGroup: Member._leave,
    do.StopFetchers: Member._stop,
    do.CommitPositions: Member._commit,
    do.ForgetPositions: Member._forget,
    do.FetchOffsets: Member._fetch_offsets,
    do.MoveFetchers: Member._move,
    do.OpenFeeds: Member._open,
    do.StartFetchers: Member._start,
    do.NotifyReleasing: Member._notify_releasing,
    do.NotifyStarting: Member._notify_starting,
    do.NotifyRevoked: Member._notify_revoked,
    do.NotifyLost: Member._notify_lost,
    do.NotifyAssigned: Member._notify_assigned,
}
