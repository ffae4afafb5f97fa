"""An event loop that is one process of a simulated cluster; all share one virtual clock.

asyncio's tasks, futures and time-outs run on it unchanged. A turn is asyncio's own: timers that are
due join what is ready, and what was ready at its beginning is run. When a loop turns next is the
world's business (`World.run`): a turn takes a few microseconds of virtual time, drawn from the
seed, so that processes interleave in every order, and nobody spins for nothing.

There is no thread and no selector. What a thread would do is done inline, a moment later.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import heapq
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, NoReturn

from kgroup.testing.beside_the_loop import BesideTheLoop
from kgroup.testing.threads import as_in_thread

if TYPE_CHECKING:
    from kgroup.testing.simulation.world import Process

NEVER = float("inf")
LAST_WORDS = 4
"""How often a coroutine may wait for something after it was closed: a task group does."""


class SimTask(asyncio.Task[Any]):
    """A task whose place in a set is not its address: what is told twice is told alike."""

    def __init__(self, coro: Coroutine[Any, Any, Any], *, loop: SimLoop, **keywords: Any) -> None:
        self.serial = next(loop.world.serials)
        super().__init__(coro, loop=loop, **keywords)

    def __hash__(self) -> int:
        return self.serial


class SimFuture(asyncio.Future[Any]):
    """The same of a future."""

    def __init__(self, *, loop: SimLoop) -> None:
        self.serial = next(loop.world.serials)
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.serial


class SimLoop(asyncio.AbstractEventLoop):
    """The loop of `process`. It runs when the world calls `turn`."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.world = process.world
        self.next_turn = NEVER
        self.free_at = 0.0
        self.tasks: dict[SimTask, None] = {}
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_serials = count()

    # ---- what the world calls

    def turn(self) -> None:
        """Run what is ready now."""
        now, ready, timers = self.world.now, self._ready, self._timers
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if not timer.cancelled():
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
        self.process.after_turn()
        self.free_at = now + self.process.turn_s()
        self.wake_for_next()

    def wake_for_next(self) -> None:
        """Have the next turn come when there is something to run."""
        if self._ready:
            self._wake(self.free_at)
        else:
            while self._timers and self._timers[0][2].cancelled():
                heapq.heappop(self._timers)
            if self._timers:
                self._wake(self._timers[0][0])

    def _wake(self, at: float) -> None:
        at = max(at, self.free_at, self.world.now)
        if at < self.next_turn:
            self.next_turn = at
            self.world.schedule(at, self)

    def bury(self) -> None:
        """Close what is under way: collected later, it would complain where nobody expects it."""
        self._ready.clear()
        self._timers.clear()
        for _ in range(LAST_WORDS):
            # What is closed may begin another task, which has to be closed as well.
            tasks, self.tasks = list(self.tasks), {}
            for task in tasks:
                for _ in range(LAST_WORDS):
                    with contextlib.suppress(BaseException):
                        task.get_coro().close()
        self.tasks.clear()

    # ---- asyncio's calls

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def time(self) -> float:
        return self.world.now

    def call_soon(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if self.next_turn == NEVER or self.next_turn > self.free_at:
            self._wake(self.free_at)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._timer_serials), timer))
        self._wake(when)
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio counts these; here a cancelled timer is passed over when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(loop=self)

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task = SimTask(coro, loop=self, name=name, context=context)
        # Kept while it runs: one of a killed process that was collected would run its finally.
        self.tasks[task] = None
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.pop(task, None)  # type: ignore[call-overload]

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        done = self.create_future()

        def run() -> None:
            if done.cancelled():
                return
            try:
                result = as_in_thread(func, *args)
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(result)

        self.call_later(self.process.thread_s(), run)
        return done

    def run_beside(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> BesideTheLoop:
        """Run as a task what elsewhere has a thread and a loop of its own."""
        return BesideTheLoop(work, name)

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: Any = None,
        **unused: Any,
    ) -> tuple[asyncio.Transport, Any]:
        if host is None or port is None or ssl:
            raise ValueError("a simulated connection takes a host and a port, and has no TLS")
        return await self.world.network.connect(self.process, protocol_factory, host, port)

    async def getaddrinfo(self, host: Any, port: Any, **unused: Any) -> Any:
        """Return the name itself: a simulated host has one address."""
        return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, port))]

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        fd.watch(functools.partial(callback, *args))

    def remove_reader(self, fd: Any) -> bool:
        was_watched: bool = fd.unwatch()
        return was_watched

    def _make_socket_transport(self, sock: Any, protocol: Any) -> Any:
        self.call_soon(sock.transport.opened, protocol)
        return sock.transport

    async def sendfile(self, *arguments: Any, **keywords: Any) -> NoReturn:
        raise asyncio.SendfileNotAvailableError("not on this network")

    async def shutdown_asyncgens(self) -> None: ...

    async def shutdown_default_executor(self, **unused: Any) -> None: ...

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.process.failed(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.process.failed(context)
