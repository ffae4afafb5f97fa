"""A guard on all event loops of a test: no turn may compute for more than half a second.

Whatever a loop does for so long, its other clients wait. What counts is the processor time of the
loop's own thread, so that a busy machine fails no test; less what it collected of garbage, which is
that of all tests before, and found among all that they have left, and less what is `uncounted`.
Loops made by `asyncio.run` and `asyncio.Runner` are guarded by the policy that `conftest.py` sets;
those with a clock of their own are GuardedLoops too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import selectors
import threading
import time
from collections.abc import Iterator
from typing import Any

LONGEST_TURN_S = 0.5

BROKERS_APART = "its brokers are processes; its own loop also checks all that was read"
ON_PURPOSE = "its loop stands still on purpose"

EXCEPTIONS: dict[str, str] = {
    "tests/interop/": BROKERS_APART,
    "tests/spark/": BROKERS_APART,
    "tests/zk/session/test_servers.py::test_a_loop_that_was_busy": ON_PURPOSE,
    "tests/zk/session/test_servers.py::test_an_answer_that_came": ON_PURPOSE,
}
"""Tests that may, by the beginning of their ids, and why."""


class _Guard:
    """The longest turn of any loop since a test began."""

    longest_s = 0.0


class _Garbage(threading.local):
    """What this thread has spent on collecting garbage."""

    collected_s = 0.0
    began_s = 0.0

    def note(self, phase: str, _: dict[str, Any]) -> None:
        """Called as a collection begins and ends, in the thread that makes it."""
        if phase == "start":
            self.began_s = time.thread_time()
        else:
            self.collected_s += time.thread_time() - self.began_s


_garbage = _Garbage()
gc.callbacks.append(_garbage.note)


class _Uncounted(threading.local):
    """What this thread has spent on work that does not count."""

    spent_s = 0.0
    began_s: float | None = None


_uncounted = _Uncounted()


@contextlib.contextmanager
def uncounted() -> Iterator[None]:
    """Do not count the block: it is a thread's work, or is slowed because it is being measured."""
    if _uncounted.began_s is not None:
        # The block around this one goes on.
        yield
        return

    _uncounted.began_s = time.thread_time()
    try:
        yield
    finally:
        _uncounted.spent_s += time.thread_time() - _uncounted.began_s
        _uncounted.began_s = None


def _worked_s() -> float:
    now_s = time.thread_time() if _uncounted.began_s is None else _uncounted.began_s
    return now_s - _garbage.collected_s - _uncounted.spent_s


class GuardedSelector(selectors.DefaultSelector):
    """Notes what each turn of its loop has computed."""

    def __init__(self) -> None:
        super().__init__()
        self._began_s: float | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.end_turn()
        ready = super().select(timeout)
        self._began_s = _worked_s()
        return ready

    def end_turn(self) -> None:
        """Count what was computed since the last wait."""
        if self._began_s is not None:
            took_s = _worked_s() - self._began_s
            _Guard.longest_s = max(_Guard.longest_s, took_s)
        self._began_s = None


class GuardedLoop(asyncio.SelectorEventLoop):
    """A loop with such a selector."""

    def __init__(self, selector: GuardedSelector | None = None) -> None:
        self._guarded = selector or GuardedSelector()
        super().__init__(self._guarded)

    def run_forever(self) -> None:
        """Run; what is computed between two runs is nobody's turn."""
        try:
            super().run_forever()
        finally:
            self._guarded.end_turn()


class GuardedLoops(asyncio.DefaultEventLoopPolicy):
    """Makes such loops."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return GuardedLoop()


def begin() -> None:
    """A test begins."""
    _Guard.longest_s = 0.0


def complaint(test_id: str) -> str | None:
    """What is wrong with the turns of the test that has ended."""
    if _Guard.longest_s <= LONGEST_TURN_S:
        return None
    if any(test_id.startswith(exempt) for exempt in EXCEPTIONS):
        return None
    return f"a turn of an event loop took {_Guard.longest_s:.3f} s of its thread's processor time"
