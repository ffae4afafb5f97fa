"""Event loops whose clock belongs to the test: virtual time, which jumps, and the test's own time.

In virtual time waiting costs nothing: when nothing is ready, the clock moves to the next timer. It
is for code without sockets or threads, since a loop that never sleeps never hears from them.

A test's own time leaves out the time for which a busy machine did not run the test. It counts what
the loop's thread has computed, and each wait for a timer as long as it was meant to be: a process
that is stopped for three seconds in a wait of ten milliseconds is ten milliseconds older. So a
time-out ends no request that nobody had the chance to answer. It is for tests whose clients and
servers are all on the loop; other processes and threads live in real time.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.stage.turn_guard import GuardedLoop, GuardedSelector

PATIENCE_S = 20.0

R = TypeVar("R")


class _JumpingSelector(GuardedSelector):
    """A selector that never waits: it moves `clock` by the time it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)

        if not ready:
            assert timeout is not None, "everything waits and no timer is set: a deadlock"
            self.clock += max(timeout, 0)

        return ready


class VirtualTimeLoop(GuardedLoop):
    """A loop whose clock begins at 0 and jumps."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.clock

    def work(self, seconds: float) -> None:
        """Keep the loop from turning for so long."""
        self._jumping.clock += seconds


class _CountingSelector(GuardedSelector):
    """A selector that adds up its waits in `waited_s`, each no longer than it was meant to be.

    With `longest_s` it skips the rest of a wait in which nothing has come for so long.
    """

    def __init__(self, longest_s: float = math.inf) -> None:
        super().__init__()
        self.waited_s = 0.0
        self._longest_s = longest_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        if timeout is not None and timeout > self._longest_s:
            ready = super().select(self._longest_s)
            took = time.monotonic() - began if ready else timeout
        else:
            ready = super().select(timeout)
            took = time.monotonic() - began
        self.waited_s += took if timeout is None else min(took, max(timeout, 0))
        return ready


class OwnTimeLoop(GuardedLoop):
    """A loop in the test's own time. Ask for its time on its thread only."""

    longest_wait_s = math.inf

    def __init__(self) -> None:
        self._counting = _CountingSelector(self.longest_wait_s)
        super().__init__(self._counting)

    def time(self) -> float:
        return self._counting.waited_s + time.thread_time()

    def work(self, seconds: float) -> None:
        """Keep the loop from turning for so long."""
        self._counting.waited_s += seconds


class ImpatientLoop(OwnTimeLoop):
    """The same, which skips waits in which nothing comes, and asks no network for a host's name."""

    longest_wait_s = 0.002

    async def getaddrinfo(self, host: Any, port: Any, **hints: Any) -> Any:
        """Read an address, and raise what is raised of a name that is not known, or is none."""
        hints["flags"] = hints.get("flags", 0) | socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, **hints)


def run_in_virtual_time(scene: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine as `asyncio.run` does, in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(scene)


def run_in_own_time(
    scene: Coroutine[Any, Any, R],
    patience_s: float = PATIENCE_S,
    loop: Callable[[], OwnTimeLoop] = OwnTimeLoop,
) -> R:
    """Run a coroutine as `asyncio.run` does, in the test's own time and no longer than that."""
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asyncio.wait_for(scene, patience_s))
