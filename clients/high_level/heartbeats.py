"""Heartbeats of a member, from a thread of their own.

An application may keep the event loop busy for a minute with its own code. Its membership must not
end by that: the thread has a loop and a connection of its own, and needs from the other no more
than the interpreter's turns.

The thread shares what is known of the cluster with the member (`clients.known_cluster`): it asks
whichever broker the member knows, and a coordinator that it finds ends the member's waits for the
last one.

The thread also watches over the application. If a stream has handed out a message, and is not asked
for the next one within max.poll.interval.ms, others should consume: the thread leaves the group,
since the busy loop could not.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

import attrs

from clients.cluster import Cluster
from clients.cluster_view import BrokerEndpoint
from groups.consumer.decide import ACCEPTED, COORDINATOR_AWAY, PLACE_LOST
from protocol.errors import ErrorCode, KgroupError
from protocol.frozen import frozen
from protocol.messages.find_coordinator import GROUP_KEY
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember
from protocol.messages.offset_commit import OffsetCommitResponse
from protocol.stalls import PUT_OFF_S, STALL_S
from protocol.suspension import suspended_s

logger = logging.getLogger(__name__)

POLL_TIMEOUT_REASON = "consumer poll timeout has expired."
"""What Java's consumer says when it leaves for this reason; tools know the words (KIP-800)."""
LOOKS_PER_LIMIT = 20
"""How often the streams are looked at during max.poll.interval.ms, at least."""
LONGEST_LOOK_MS = 1000
SOON_MS = 10
"""Pause before a heartbeat that is to be sent soon. Each of the next ones is twice as long, up to
heartbeat.interval.ms."""
RETRY_MS = 100
"""Pause after a heartbeat that no coordinator has taken."""
ATTEMPTS_PER_SESSION = 3
"""A coordinator that is silent is given up early enough to find another within the session."""
END_S = 2.0


class WatchedStream(Protocol):
    """A stream whose application may take too long."""

    def work_in_hand(self) -> object | None:
        """Return what stands for the message that the application works on; None if for none."""

    @property
    def is_asked(self) -> bool:
        """Return whether the application waits for a message."""


@frozen
class HeartbeatIdentity:
    """The member for which heartbeats are sent."""

    member_id: str
    generation_id: int


@frozen
class Overdue:
    """A stream that was not asked for its next message in time, and for how long.

    `since_s`: when it was first seen with that message, by the clock of loops.
    """

    stream: WatchedStream
    worked_ms: int
    since_s: float


def describe_work(worked_ms: int, limit_ms: int) -> str:
    """Say in a reason how long it took; `kgroup events` reads it."""
    return f"It worked on one message for {worked_ms} ms, max.poll.interval.ms is {limit_ms}."


@attrs.define(eq=False)
class PollClock:
    """Measures how long the application has worked on the last message of each stream.

    It only looks now and then, so it costs the streams nothing.
    """

    streams: Sequence[WatchedStream]
    max_poll_interval_ms: int
    _seen: dict[int, tuple[object, float]] = attrs.field(factory=dict)
    _not_before_s: float = float("-inf")
    """The time before which nobody is overdue."""

    def put_off(self, now_s: float) -> None:
        """Give the application a moment: the process stood still, and it with it.

        Once in max.poll.interval.ms, or one that keeps the interpreter would never be overdue.
        """
        if now_s >= self._not_before_s + self.max_poll_interval_ms / 1000:
            self._not_before_s = now_s + PUT_OFF_S

    def find_overdue(self, now_s: float) -> Overdue | None:
        """Look at the streams; return one that is over its time."""
        for number, stream in enumerate(self.streams):
            work = stream.work_in_hand()
            seen = self._seen.get(number)
            if work is None:
                self._seen.pop(number, None)
            elif seen is None or seen[0] != work:
                self._seen[number] = work, now_s
            else:
                worked_ms = int((now_s - seen[1]) * 1000)
                if worked_ms > self.max_poll_interval_ms and now_s >= self._not_before_s:
                    return Overdue(stream, worked_ms, seen[1])
        return None


class Joinable(Protocol):
    """Work that goes on beside the application's loop."""

    def join(self, timeout: float) -> None:
        """Wait for its end, at most so many seconds."""


def start_thread(work: Callable[[], Coroutine[Any, Any, None]], name: str) -> Joinable:
    """Run a coroutine on a loop of its own, in a thread of its own.

    A loop in virtual time has no threads; it has `run_beside` for such work.
    """
    loop = asyncio.get_running_loop()
    if hasattr(loop, "run_beside"):
        beside: Joinable = loop.run_beside(work, name)
        return beside

    thread = threading.Thread(target=lambda: asyncio.run(work()), name=name, daemon=True)
    thread.start()
    return thread


@attrs.define(eq=False)
class Heartbeats:
    """The thread of one member.

    `new_cluster` makes the thread's own connections, and gets the limit of each wait in ms.
    `on_response`, `on_silence` (the identity, and for how many ms no heartbeat of it was accepted),
    `on_failure` (why the thread has ended) and `on_overdue` are called on the loop that made this
    object. `start` begins the thread; where time is virtual there are none, and the work is a task.
    """

    group_id: str
    group_instance_id: str | None
    interval_ms: int
    session_timeout_ms: int
    clock: PollClock
    new_cluster: Callable[[int], Cluster]
    on_response: Callable[[HeartbeatIdentity, ErrorCode], None]
    on_silence: Callable[[HeartbeatIdentity, int], None]
    on_failure: Callable[[str], None]
    on_overdue: Callable[[Overdue], None]
    start: Callable[[Callable[[], Coroutine[Any, Any, None]], str], Joinable] = start_thread
    suspended_s: Callable[[], float] = suspended_s
    """Returns for how long the machine has been suspended so far."""
    _identity: HeartbeatIdentity | None = None
    _accepted_s: float = 0.0
    """When the last heartbeat was sent that was accepted: since then the session lasts.

    By the loop's clock and the time in which the machine was suspended: the coordinator's goes on.
    """
    _coordinator: BrokerEndpoint | None = None
    """The broker that was asked last."""
    _silent: HeartbeatIdentity | None = None
    """The identity of which the member was told that no heartbeat is accepted."""
    _left: HeartbeatIdentity | None = None
    """The identity with which the thread left, or is leaving, for the application."""
    _is_hastened: bool = False
    _is_closed: bool = False
    _thread: Joinable | None = None
    _loop: asyncio.AbstractEventLoop | None = None
    _changed: asyncio.Event | None = None
    _caller: asyncio.AbstractEventLoop = attrs.field(factory=asyncio.get_running_loop)

    # ---- on the application's loop

    def begin(self, identity: HeartbeatIdentity) -> None:
        """Send heartbeats with this identity from now on."""
        self._identity = identity
        self._is_hastened = False
        # Joining counts as one.
        self._accepted_s = self._session_s()
        if self._thread is None:
            self._thread = self.start(self._run, f"heartbeats of {self.group_id}")
        self._wake()

    def hasten(self) -> None:
        """Send the next heartbeats after 10, 30, 70 ms and so on, then at the interval again."""
        self._is_hastened = True
        self._wake()

    @property
    def silence_ms(self) -> int:
        """Return the time since the coordinator last accepted a heartbeat."""
        return int((self._session_s() - self._accepted_s) * 1000)

    def _session_s(self) -> float:
        """Return the clock by which a session passes."""
        return asyncio.get_running_loop().time() + self.suspended_s()

    @property
    def is_entitled(self) -> bool:
        """Return whether the coordinator cannot have given our partitions to others yet.

        By the clock, since a process that was stopped goes on before its timers fire.
        """
        identity = self._identity
        if identity is None:
            return True

        # They are others' from the moment when the coordinator reads that we leave, whether we
        # hear of it or not (fault groups-1).
        if identity == self._left:
            return False
        return self.silence_ms < self.session_timeout_ms

    @property
    def coordinator(self) -> str:
        """Name the coordinator that was asked last, for the log."""
        coordinator = self._coordinator
        if coordinator is None:
            return "the coordinator"
        return f"broker {coordinator.node_id} ({coordinator})"

    def end(self) -> None:
        """Send no more heartbeats."""
        self._identity = None
        self._wake()

    async def close(self) -> None:
        """End the thread."""
        self._is_closed = True
        self.end()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, END_S)

    def _wake(self) -> None:
        loop = self._loop
        changed = self._changed
        if loop is not None and changed is not None:
            # The thread may have just ended; if that was an error, `_failed` comes.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(changed.set)

    def _failed(self, reason: str) -> None:
        """Tell the member that the thread has ended; the next `begin` starts another."""
        self._thread = self._loop = self._changed = None
        self.on_failure(reason)

    # ---- in the thread

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        try:
            cluster = self.new_cluster(self._limit_ms)
            try:
                await self._send_until_closed(cluster, self._changed)
            finally:
                await cluster.close()
        except Exception as error:
            logger.exception("group %s: heartbeats failed", self.group_id)
            # Without heartbeats the member is out, and nothing else tells it (fault groups-1).
            self._call_back(self._failed, f"{error!r}")

    @property
    def _limit_ms(self) -> int:
        """How long one heartbeat may take, with the search for the coordinator."""
        return max(self.session_timeout_ms // ATTEMPTS_PER_SESSION, 1)

    async def _send_until_closed(self, cluster: Cluster, changed: asyncio.Event) -> None:
        look_ms = min(
            self.clock.max_poll_interval_ms // LOOKS_PER_LIMIT, LONGEST_LOOK_MS, self.interval_ms
        )
        loop = asyncio.get_running_loop()
        pause_ms = self.interval_ms
        due_s = loop.time()
        sent: HeartbeatIdentity | None = None
        while not self._is_closed:
            wait_ms: float = look_ms
            identity = self._identity
            if identity is not None and identity != self._left:
                overdue = self.clock.find_overdue(loop.time())
                if overdue is not None:
                    await self._leave(cluster, identity, overdue)
                elif identity != sent or self._is_hastened:
                    # A new identity has just joined: its first heartbeat is due later.
                    pause_ms = SOON_MS if self._is_hastened else self.interval_ms
                    self._is_hastened = False
                    sent = identity
                    due_s = loop.time() + pause_ms / 1000
                    if cluster.stale:
                        await self._look_around(cluster)
                elif loop.time() >= due_s or self.silence_ms >= self.session_timeout_ms:
                    is_taken = await self._beat(cluster, identity)
                    pause_ms = min(2 * pause_ms, self.interval_ms)
                    if not is_taken:
                        # The session goes on meanwhile: look for the coordinator at once.
                        pause_ms = min(RETRY_MS, self.interval_ms)
                        self._note_silence(identity)
                    due_s = loop.time() + pause_ms / 1000
                    if cluster.stale or not is_taken:
                        await self._look_around(cluster)
                wait_ms = min(look_ms, (due_s - loop.time()) * 1000)
            look_s = loop.time() + max(wait_ms, 1) / 1000
            await _wait(changed, max(wait_ms, 1) / 1000)
            if loop.time() - look_s > STALL_S:
                # The application could not ask for its next message either (fault groups-5).
                self.clock.put_off(loop.time())

    async def _beat(self, cluster: Cluster, identity: HeartbeatIdentity) -> bool:
        """Send a heartbeat. Return whether a coordinator has responded to it."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=self.group_instance_id,
        )
        loop = asyncio.get_running_loop()
        begun_s, sent_s = loop.time(), self._session_s()
        coordinator = self._note_coordinator(cluster)
        # The session may pass while the response is waited for. After a stall of the process it
        # lies in the socket.
        left_s = (self.session_timeout_ms + 1 - self.silence_ms) / 1000
        end = loop.call_later(max(left_s, PUT_OFF_S), self._note_silence, identity)
        try:
            async with asyncio.timeout(None) as limit:
                # A broker that is stopped would be waited for too long (fault groups-3).
                limit.reschedule(begun_s + self._limit_ms / 1000)
                response: HeartbeatResponse = await cluster.call_coordinator(
                    self.group_id, request, is_doubtful=is_place_lost
                )
        except TimeoutError:
            logger.info("group %s: heartbeat: no response in %d ms", self.group_id, self._limit_ms)
            # It may have been found late, and not be silent at all.
            if coordinator is not None:
                cluster.coordinator_failed(self.group_id, coordinator)
            return False
        except KgroupError as error:
            # The next one looks for the coordinator; the session lasts so long.
            logger.info("group %s: heartbeat: %s", self.group_id, error)
            return False
        finally:
            end.cancel()
            self._note_coordinator(cluster)

        error_code = ErrorCode.of(response.error_code)
        is_away = error_code in COORDINATOR_AWAY
        if is_away:
            cluster.forget_coordinator(self.group_id)
            # The broker that named it may be behind the others.
            cluster.ask_another()
        if error_code in ACCEPTED and identity == self._identity:
            # The process stood still: it says nothing of the session that has passed since.
            if (self._session_s() - sent_s) * 1000 >= self.session_timeout_ms:
                return False
            self._accepted_s = sent_s
            self._silent = None
        self._call_back(self.on_response, identity, error_code)
        return not is_away

    def _note_coordinator(self, cluster: Cluster) -> BrokerEndpoint | None:
        """Return the coordinator that is known now; one that is given up has been it last."""
        coordinator = cluster.known.coordinator((GROUP_KEY, self.group_id))
        self._coordinator = coordinator or self._coordinator
        return coordinator

    async def _look_around(self, cluster: Cluster) -> None:
        """Read which brokers there are: those of the settings may be replaced one by one."""
        try:
            async with asyncio.timeout(self._limit_ms / 1000):
                await cluster.refresh()
        except (KgroupError, TimeoutError) as error:
            logger.debug("group %s: no broker responds: %s", self.group_id, error)

    def _note_silence(self, identity: HeartbeatIdentity) -> None:
        """Tell the member once when no heartbeat has been accepted for the session timeout."""
        silence_ms = self.silence_ms
        is_news = identity == self._identity and identity != self._silent
        if is_news and silence_ms >= self.session_timeout_ms:
            self._silent = identity
            self._call_back(self.on_silence, identity, silence_ms)

    async def _leave(self, cluster: Cluster, identity: HeartbeatIdentity, overdue: Overdue) -> None:
        """Leave for the application, which does not let its loop do it."""
        # Not by forgetting the identity: another one may come meanwhile.
        self._left = identity
        if self.group_instance_id is None:
            member = LeaveGroupRequestMember(
                member_id=identity.member_id,
                reason=f"{POLL_TIMEOUT_REASON} "
                f"{describe_work(overdue.worked_ms, self.clock.max_poll_interval_ms)}",
            )
            request = LeaveGroupRequest(
                group_id=self.group_id, member_id=identity.member_id, members=[member]
            )
            try:
                async with asyncio.timeout(self._limit_ms / 1000):
                    await cluster.call_coordinator(self.group_id, request)
            except (KgroupError, TimeoutError) as error:
                logger.info("group %s: cannot leave: %s", self.group_id, error)
        self._call_back(self.on_overdue, overdue)

    def _call_back(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._caller.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            # The application's loop is closed, and nobody waits for this.
            self._is_closed = True


def is_place_lost(response: Any) -> bool:
    """Return whether a response of a coordinator takes a member's place."""
    if isinstance(response, OffsetCommitResponse):
        codes = {result.error_code for topic in response.topics for result in topic.partitions}
    else:
        codes = {getattr(response, "error_code", ErrorCode.NONE)}
    return not PLACE_LOST.isdisjoint(codes)


async def _wait(changed: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await changed.wait()
    except TimeoutError:
        return
    changed.clear()
