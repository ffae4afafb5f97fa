"""An event loop whose clock jumps: waiting costs nothing and timers fire in order.

When nothing is ready the loop would sleep until its next timer; this one moves its clock there
instead. For code without sockets or threads: with those, a loop that never sleeps never hears.
"""

from __future__ import annotations

import selectors

from tests.stage.turn_guard import GuardedLoop, GuardedSelector


class _JumpingSelector(GuardedSelector):
    """Asks without waiting and moves `clock` by the time it was to wait."""

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
    """Begins at time 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.clock

    def work(self, seconds: float) -> None:
        """Keep the loop from turning for so long."""
        self._jumping.clock += seconds
