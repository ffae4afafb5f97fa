"""A living member of a ZooKeeper group: does what `membership.decide` wants done.

One runner task performs the effects one after the other and brings back what came of them as
events; watches, timers and the state of the session bring the others. `decide` is called for each
event at once, on the event loop. The streams are behind `Delivery`, ZooKeeper behind `GroupTree`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Set
from contextvars import ContextVar
from typing import Any, Protocol

import attrs

from groups.zookeeper import effects as do
from groups.zookeeper import events as on
from groups.zookeeper.membership import decide
from groups.zookeeper.membership_state import Membership, Phase
from groups.zookeeper.tree import GroupTree
from protocol.errors import KgroupError
from protocol.topic_partition import TopicPartition
from zk.api import ConnectionLoss, SessionState, WatchEvent, ZkError

_log = logging.getLogger(__name__)

Partitions = Set[TopicPartition]

_LISTENING: ContextVar[object] = ContextVar("listening", default=None)
"""The call of a rebalance listener in which we are."""

LEAVE_PATIENCE_S = 8.0
"""For all that a member does when it leaves: a process that is asked to stop has 10 s as a rule,
and what is left behind vanishes with its session."""

LEAVE_PAUSE_S = 0.1


class ConsumerRebalanceFailed(KgroupError):
    """The first rebalance did not end within rebalance.max.retries; the member keeps trying."""


class MalformedMember(ConsumerRebalanceFailed):
    """A registration that nobody can read keeps every member, on the JVM too, from rebalancing; the
    message names the node to remove. What a member owned it keeps, and it goes on trying."""


class ConsumerIdInUse(KgroupError):
    """Another living member of the group has our consumer id; this one has not joined."""


class StrategyConflict(KgroupError):
    """The group has members with a partition.assignment.strategy that does not go with ours; this
    one has not joined."""


class MembershipLost(KgroupError):
    """The ZooKeeper session of a member was closed under it; it has left the group for good, and
    committed nothing."""


class Delivery(Protocol):
    """The streams, as their member sees them.

    What is a plain function takes effect before it returns: no message of a stopped partition is
    handed out afterwards.
    """

    def stop(self, partitions: Partitions) -> None:
        """Stop fetching, drop what is queued; the position stays until `forget`."""

    def move(self, threads: Mapping[TopicPartition, str]) -> None:
        """Continue these partitions, at their positions, on other threads."""

    def start(self, starts: Mapping[TopicPartition, tuple[str, int | None]]) -> None:
        """Deliver from an offset (None: by auto.offset.reset) to a thread."""

    def pause(self) -> None:
        """Hand out and commit nothing until `resume`."""

    def resume(self) -> None:
        """Undo `pause`."""

    def abandon(self) -> None:
        """`stop` and `forget` everything."""

    def fail(self, error: Exception) -> None:
        """Raise `error` from every stream: nothing will come any more."""

    async def forget(self, partitions: Partitions) -> None:
        """Drop the positions, and return when no commit of them is on its way any more."""

    async def commit(self, partitions: Partitions) -> None:
        """Commit positions. A failure is logged, not raised: who comes next consumes again."""

    async def fetch_offsets(
        self, partitions: Partitions
    ) -> tuple[Mapping[TopicPartition, int | None], Mapping[TopicPartition, str]]:
        """Committed offsets, and the reason for each that cannot be read now."""

    async def before_releasing(self, owned: Partitions) -> None:
        """The application's rebalance listener."""

    async def before_starting(self, assignment: Mapping[TopicPartition, str]) -> None:
        """The application's rebalance listener."""


@attrs.define(eq=False)
class Member:
    """`join()` it once; `leave()` it in the end. Its ZooKeeper session is the caller's to close."""

    tree: GroupTree
    delivery: Delivery
    membership: Membership
    jitter: random.Random = attrs.field(factory=lambda: random.Random(random.random()))
    told: Callable[[str | None], None] = lambda error: None
    """Is told what keeps the group from being settled; None when nothing does."""
    rebalanced: Callable[[float], None] = lambda took_ms: None
    """Is told of each round that changed something, and how long it took from the reading on."""
    failed: Callable[[], None] = lambda: None
    """Is told of each step that ZooKeeper, an offset store or we ourselves did not let us take; it
    is tried again."""
    _round_began_ms: int = 0
    _queue: asyncio.Queue[do.Ordered | None] = attrs.field(factory=asyncio.Queue)
    _timers: dict[on.Event, asyncio.TimerHandle] = attrs.field(factory=dict)
    _runner: asyncio.Task[None] | None = None
    _joined: asyncio.Future[None] | None = None
    _patience: asyncio.Timeout | None = None
    """What bounds the effect that is being performed, if it is not a call of the listener."""
    _is_reading: bool = False
    _leaves_since_s: float = 0.0
    _leave_by_s: float | None = None
    _listening: object = None
    """Stands for the call of the listener that has not returned yet."""

    async def join(self) -> None:
        """Register, and return when the first rebalance is done.

        Raises ConsumerIdInUse and StrategyConflict, after which this member is out of the group;
        ConsumerRebalanceFailed and its kind MalformedMember, after which it goes on trying;
        MembershipLost.
        """
        assert self._joined is None, "a member joins once"
        self._joined = asyncio.get_running_loop().create_future()
        self._runner = asyncio.create_task(self._run(), name=f"member {self.consumer_id}")
        self.tree.zk.add_state_listener(self._session_changed)
        if self.tree.zk.state in (SessionState.CONNECTED, SessionState.CLOSED):
            self._session_changed(self.tree.zk.state)
        await self._joined

    async def leave(self, patience_s: float = LEAVE_PATIENCE_S) -> None:
        """Commit (if auto.commit.enable), release, unregister. May be called again, which only then
        waits for the end when an earlier call was cancelled.

        Takes `patience_s` at most, and the time the application's listener takes for itself.
        """
        if self._runner is None:
            return
        if self._leave_by_s is None:
            self._leaves_since_s = _now_s()
            self._leave_by_s = self._leaves_since_s + patience_s
            self._happen(on.Shutdown())
            self._queue.put_nowait(None)

        runner = self._runner
        await asyncio.wait({runner})  # a cancellation is ours, and not the runner's
        if self._runner is None:
            return
        self._runner = None

        self.tree.zk.remove_state_listener(self._session_changed)
        self.tree.unwatch()
        for timer in self._timers.values():
            timer.cancel()
        if self._joined and not self._joined.done():
            left = f"{self.consumer_id} has left before its first rebalance was done"
            self._joined.set_exception(ConsumerRebalanceFailed(left))
        if not runner.cancelled():
            runner.result()

    @property
    def calls_listener(self) -> bool:
        """Whether the caller is the application's rebalance listener, or a task it has made, and
        the call of the listener has not returned yet."""
        return self._listening is not None and _LISTENING.get() is self._listening

    @property
    def consumer_id(self) -> str:
        """The name of our node under `ids`."""
        return self.membership.consumer_id

    @property
    def settled(self) -> bool:
        """Whether the last round ended with all that the assignment gives us."""
        return self.membership.phase is Phase.SETTLED

    # --- events -------------------------------------------------------------------------------

    def _monotonic_ms(self) -> int:
        return int(_now_s() * 1000)

    def _happen(self, event: on.Event) -> None:
        _log.debug("%s: %s", self.consumer_id, event)
        self.membership, effects = decide(self.membership, event, self._monotonic_ms())
        for effect in effects:
            if urgent := _URGENT.get(type(effect)):
                urgent(self, effect)
            else:
                self._queue.put_nowait(effect)  # type: ignore[arg-type]

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._happen(on.SessionEstablished(self.tree.zk.session_id))
        elif state is SessionState.SUSPENDED:
            since_ms = self.tree.zk.suspended_since_ms or self._monotonic_ms()
            self._happen(on.Suspended(since_ms, self.tree.zk.session_timeout_ms))
        elif state is SessionState.EXPIRED:
            _log.warning("%s: the ZooKeeper session has expired", self.consumer_id)
            self._happen(on.SessionExpired())
        elif state is SessionState.CLOSED:
            self._happen(on.SessionClosed())

    def _group_changed(self, event: WatchEvent) -> None:
        self._happen(on.GroupChanged())

    def _topics_changed(self, event: WatchEvent) -> None:
        self._happen(on.TopicsChanged())

    def _brokers_changed(self, event: WatchEvent) -> None:
        self._happen(on.BrokersChanged())

    def _owner_changed(self, event: WatchEvent) -> None:
        self._happen(on.OwnerChanged())

    # --- urgent effects -----------------------------------------------------------------------

    def _abandon(self, effect: do.Abandon) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        self.delivery.abandon()
        self._interrupt()

    def _interrupt(self, effect: do.Interrupt | None = None) -> None:
        if self._patience is None:
            return
        if self._is_reading:
            self._patience.reschedule(0)
        elif self._leave_by_s is not None:
            self._patience.reschedule(self._leave_by_s)

    def _fail(self, effect: do.FailDelivery) -> None:
        self.delivery.fail(MembershipLost(effect.reason))

    def _pause(self, effect: do.PauseDelivery) -> None:
        _log.warning("%s: without ZooKeeper too long: delivery pauses", self.consumer_id)
        self.delivery.pause()

    def _resume(self, effect: do.ResumeDelivery) -> None:
        self.delivery.resume()

    def _set_timer(self, effect: do.SetTimer) -> None:
        if former := self._timers.pop(effect.event, None):
            former.cancel()
        delay_ms = effect.at_ms - self._monotonic_ms() + self.jitter.uniform(0, effect.spread_ms)
        loop = asyncio.get_running_loop()
        self._timers[effect.event] = loop.call_later(delay_ms / 1000, self._ring, effect.event)

    def _ring(self, event: on.Event) -> None:
        del self._timers[event]
        self._happen(event)

    def _report(self, effect: do.Report) -> None:
        if effect.error:
            _log.error("%s: %s", self.consumer_id, effect.error)
        self.told(effect.error)
        if self._joined is None or self._joined.done():
            return
        if effect.failure is None:
            self._joined.set_result(None)
        else:
            self._joined.set_exception(_EXCEPTIONS[effect.failure](effect.error))

    # --- effects in order ---------------------------------------------------------------------

    async def _run(self) -> None:
        while effect := await self._queue.get():
            if event := await self._perform(effect):
                self._happen(event)

    async def _perform(self, effect: do.Ordered) -> on.Event | None:
        """Do one effect. Whatever goes wrong ends in an event, so the member never falls silent."""
        try:
            if type(effect) in _CALLS:
                return await _ORDERED[type(effect)](self, effect)
            return await self._within_bounds(effect)
        except ZkError as error:
            reason = f"{type(effect).__name__}: {error!r}"
            _log.warning("%s: %s", self.consumer_id, reason)
        except Exception as error:
            reason = f"{type(effect).__name__}: {error!r}"
            _log.exception("%s: %s", self.consumer_id, reason)
        self.failed()
        if isinstance(effect, do.Register):
            return on.RegistrationFailed(effect.session_id, reason)
        if isinstance(effect, do.ReleaseOwners):
            return on.ReleaseFailed(effect.round, reason)
        return on.RoundFailed(getattr(effect, "round", self.membership.round), reason)

    async def _within_bounds(self, effect: do.Ordered) -> on.Event | None:
        """A reading may take as long as brokers and ZooKeeper are away; who leaves or has lost its
        session does not wait for it. Who leaves waits for the rest until it is time to be gone."""
        self._is_reading = type(effect) in _READS
        if self._is_reading and self.membership.phase is Phase.CLOSED:
            return None
        patience = self._patience = asyncio.timeout_at(self._leave_by_s)
        try:
            async with patience:
                return await _ORDERED[type(effect)](self, effect)
        except TimeoutError:
            if not patience.expired():
                raise
            if not self._is_reading:  # else the round it was for has ended
                _log.warning("%s: leaves without %s", self.consumer_id, type(effect).__name__)
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
        read = await self.tree.read_group(
            self._group_changed, self._topics_changed, self._brokers_changed
        )
        if isinstance(read, on.GroupProblem):
            return on.GroupUnreadable(effect.round, read)
        return on.GroupRead(effect.round, read)

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
        """As long as the session may live, which can be shared, for nobody else takes our nodes
        away."""
        zk = self.tree.zk
        session_id, ends_ms = zk.session_id, self._monotonic_ms() + zk.session_timeout_ms
        while True:
            try:
                return await self.tree.release(effect.partitions, unregister=True)
            except ConnectionLoss:
                if zk.session_id != session_id or self._monotonic_ms() >= ends_ms:
                    raise
            await asyncio.sleep(LEAVE_PAUSE_S)

    async def _stop(self, effect: do.StopFetchers) -> None:
        self.delivery.stop(effect.partitions)

    async def _commit(self, effect: do.CommitOffsets) -> None:
        await self.delivery.commit(effect.partitions)

    async def _forget(self, effect: do.ForgetPositions) -> None:
        await self.delivery.forget(effect.partitions)

    async def _fetch_offsets(self, effect: do.FetchOffsets) -> on.Event:
        offsets, failed = await self.delivery.fetch_offsets(effect.partitions)
        if failed:
            self.failed()
        for partition, reason in failed.items():
            _log.warning("%s: offset of %s: %s", self.consumer_id, partition, reason)
        return on.OffsetsFetched(effect.round, offsets, failed)

    async def _move(self, effect: do.MoveFetchers) -> None:
        self.delivery.move(effect.threads)

    async def _start(self, effect: do.StartFetchers) -> None:
        self.delivery.start(effect.starts)

    async def _notify_releasing(self, effect: do.NotifyReleasing) -> None:
        await self._tell(lambda: self.delivery.before_releasing(effect.owned))

    async def _notify_starting(self, effect: do.NotifyStarting) -> None:
        await self._tell(lambda: self.delivery.before_starting(effect.assignment))
        self.rebalanced(self._monotonic_ms() - self._round_began_ms)

    async def _tell(self, listener: Callable[[], Awaitable[None]]) -> None:
        """A listener that fails is the application's fault, and no reason to stop rebalancing."""
        began_s = _now_s()
        self._listening = object()
        token = _LISTENING.set(self._listening)
        try:
            await listener()
        except Exception:
            _log.exception("%s: the rebalance listener failed", self.consumer_id)
        finally:
            self._listening = None
            _LISTENING.reset(token)
        if self._leave_by_s is not None:
            self._leave_by_s += _now_s() - max(began_s, self._leaves_since_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


_EXCEPTIONS: dict[do.Failure, type[Exception]] = {
    do.Failure.RETRIES: ConsumerRebalanceFailed,
    do.Failure.ID_IN_USE: ConsumerIdInUse,
    do.Failure.UNREADABLE: MalformedMember,
    do.Failure.STRATEGY: StrategyConflict,
    do.Failure.SESSION_CLOSED: MembershipLost,
}
_CALLS = {do.NotifyReleasing, do.NotifyStarting}
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
    do.CommitOffsets: Member._commit,
    do.ForgetPositions: Member._forget,
    do.FetchOffsets: Member._fetch_offsets,
    do.MoveFetchers: Member._move,
    do.StartFetchers: Member._start,
    do.NotifyReleasing: Member._notify_releasing,
    do.NotifyStarting: Member._notify_starting,
}
