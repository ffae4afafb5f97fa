"""Heartbeats of a member, from a thread of their own.

An application may keep the event loop busy for a minute with its own code. Its membership must not
end by that: the thread has a loop and a connection of its own, and needs from the other no more
than the interpreter's turns.

The thread also watches over the application. If a stream has handed out a message, and is not asked
for the next one within max.poll.interval.ms, others should consume: the thread leaves the group,
since the busy loop could not.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import attrs

from clients.cluster import Cluster
from protocol.errors import ErrorCode, KgroupError
from protocol.frozen import frozen
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupRequestMember

logger = logging.getLogger(__name__)

POLL_TIMEOUT_REASON = "consumer poll timeout has expired."
"""What Java's consumer says when it leaves for this reason; tools know the words (KIP-800)."""
LOOKS_PER_LIMIT = 20
"""How often the streams are looked at during max.poll.interval.ms, at least."""
LONGEST_LOOK_MS = 1000
SOON_MS = 10
"""Pause before a heartbeat that is to be sent soon. Each of the next ones is twice as long, up to
heartbeat.interval.ms."""
END_S = 2.0

_COORDINATOR_AWAY = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


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
                if worked_ms > self.max_poll_interval_ms:
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

    `new_cluster` makes the thread's own view of the cluster. `on_response` and `on_overdue` are
    called on the loop that made this object. `start` begins the thread; where time is virtual there
    are none, and the work is a task.
    """

    group_id: str
    group_instance_id: str | None
    interval_ms: int
    clock: PollClock
    new_cluster: Callable[[], Cluster]
    on_response: Callable[[HeartbeatIdentity, ErrorCode], None]
    on_overdue: Callable[[Overdue], None]
    start: Callable[[Callable[[], Coroutine[Any, Any, None]], str], Joinable] = start_thread
    _identity: HeartbeatIdentity | None = None
    _accepted_s: float = 0.0
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
        self._accepted_s = asyncio.get_running_loop().time()
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
        return int((asyncio.get_running_loop().time() - self._accepted_s) * 1000)

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
            try:
                loop.call_soon_threadsafe(changed.set)
            except RuntimeError:
                # The thread has just ended.
                assert self._is_closed

    # ---- in the thread

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        cluster = self.new_cluster()
        try:
            await self._send_until_closed(cluster, self._changed)
        except Exception:
            logger.exception("group %s: heartbeats failed", self.group_id)
        finally:
            await cluster.close()

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
            if identity is not None:
                overdue = self.clock.find_overdue(loop.time())
                if overdue is not None:
                    await self._leave(cluster, identity, overdue)
                elif identity != sent or self._is_hastened:
                    # A new identity has just joined: its first heartbeat is due later.
                    pause_ms = SOON_MS if self._is_hastened else self.interval_ms
                    self._is_hastened = False
                    sent = identity
                    due_s = loop.time() + pause_ms / 1000
                elif loop.time() >= due_s:
                    await self._beat(cluster, identity)
                    pause_ms = min(2 * pause_ms, self.interval_ms)
                    due_s = loop.time() + pause_ms / 1000
                wait_ms = min(look_ms, (due_s - loop.time()) * 1000)
            await _wait(changed, max(wait_ms, 1) / 1000)

    async def _beat(self, cluster: Cluster, identity: HeartbeatIdentity) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=self.group_instance_id,
        )
        try:
            response: HeartbeatResponse = await cluster.call_coordinator(self.group_id, request)
        except KgroupError as error:
            # The next one looks for the coordinator; the session lasts so long.
            logger.info("group %s: heartbeat: %s", self.group_id, error)
            cluster.forget_coordinator(self.group_id)
            return
        error_code = ErrorCode.of(response.error_code)
        if error_code is ErrorCode.NONE and identity == self._identity:
            self._accepted_s = asyncio.get_running_loop().time()
        if error_code in _COORDINATOR_AWAY:
            cluster.forget_coordinator(self.group_id)
        self._call_back(self.on_response, identity, error_code)

    async def _leave(self, cluster: Cluster, identity: HeartbeatIdentity, overdue: Overdue) -> None:
        """Leave for the application, which does not let its loop do it."""
        # Unless another identity has come meanwhile.
        if self._identity == identity:
            self._identity = None
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
                await cluster.call_coordinator(self.group_id, request)
            except KgroupError as error:
                logger.info("group %s: cannot leave: %s", self.group_id, error)
        self._call_back(self.on_overdue, overdue)

    def _call_back(self, call: Callable[..., None], *arguments: Any) -> None:
        try:
            self._caller.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            # The application's loop is closed, and nobody waits for this.
            self._is_closed = True


async def _wait(changed: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await changed.wait()
    except TimeoutError:
        return
    changed.clear()
