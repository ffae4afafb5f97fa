"""An event loop whose clock leaves out the time for which a busy machine did not run the test.

It counts what the loop's thread has computed, and each wait for a timer as what it was to be: who
is stopped for three seconds in a wait of ten milliseconds is ten older. So a time-out ends no
request that nobody was let answer, and what a test measures is what its code takes. For tests whose
clients and servers are all on the loop; other processes and threads live in real time.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from tests.stage.turn_guard import GuardedLoop, GuardedSelector

PATIENCE_S = 20.0
INTERRUPTED_S = 0.001
"""What a wait counts at most that something ended before its time: nobody knows when that came."""

R = TypeVar("R")


class _CountingSelector(GuardedSelector):
    """Counts in `waited_s` what it has waited, each time no more than it was to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = time.monotonic()
        ready = super().select(timeout)
        took = time.monotonic() - began
        self.waited_s += took if timeout is None else min(took, max(timeout, 0))
        return ready


class OwnTimeLoop(GuardedLoop):
    """Its time is to be asked for on its thread only."""

    def __init__(self) -> None:
        self._counting = _CountingSelector()
        super().__init__(self._counting)

    def time(self) -> float:
        return self._counting.waited_s + time.thread_time()


def run_in_own_time(scene: Coroutine[Any, Any, R], patience_s: float = PATIENCE_S) -> R:
    """`asyncio.run`, bounded in time."""
    with asyncio.Runner(loop_factory=OwnTimeLoop) as runner:
        return runner.run(asyncio.wait_for(scene, patience_s))
