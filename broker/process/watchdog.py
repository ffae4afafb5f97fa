"""Log when the event loop stops, and where (`kgroup.event.loop.watchdog.ms`).

All clients, followers and the controller wait for one loop, so a turn of it must be short.

A `TurnClock` is the loop's own selector and notes when a turn begins and ends, which costs two
reads of a clock. A thread looks at these notes as often as a turn may take, and less often while
the loop rests. During a turn that is too long, it logs the loop's stack: once a turn, and once a
second at most. After that turn it logs how long the turn took at least, and how much of that was
computing; the rest was waiting, for a disk or a processor. A turn that ends before anybody looks is
counted all the same.
"""

from __future__ import annotations

import logging
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType

import attrs

from protocol.metrics import Metrics

logger = logging.getLogger(__name__)

RESTING_TURNS = 10
RESTING_LIMITS = 4
"""A loop rests if it waits, and has made no more turns than `RESTING_TURNS` since the last look.
The next look at it comes after so many limits: to wake up ten times a second would cost more than
all that is done then."""
STACK_INTERVAL_S = 1.0
"""The shortest time between two logged stacks."""


class TurnClock(selectors.DefaultSelector):
    """A selector that knows whether the loop works, and since when.

    `limit_s` is the longest time for a turn. Longer turns are counted as they end. `began` is the
    start of the current turn by the monotonic clock, None while the loop waits.
    """

    def __init__(self, limit_s: float = float("inf")) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.turns = 0
        self.long_turns = 0
        self.longest_s = 0.0
        self.began: float | None = None

    def count_in(self, metrics: Metrics) -> None:
        """Show the turns among the figures of a broker."""
        metrics.watch("event_loop_turns_total", lambda: self.turns)
        metrics.watch("event_loop_long_turns_total", lambda: self.long_turns)
        metrics.watch("event_loop_longest_turn_ms", lambda: self.longest_s * 1000)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn, wait, and begin the next one."""
        # A turn ends when the loop comes back for more events.
        if self.began is not None:
            took_s = time.monotonic() - self.began
            if took_s >= self.limit_s:
                self.long_turns += 1
                self.longest_s = max(self.longest_s, took_s)

        # The wait in between belongs to no turn.
        self.began = None
        ready = super().select(timeout)
        self.turns += 1
        self.began = time.monotonic()
        return ready


@attrs.define(eq=False)
class _LongTurn:
    """A turn that was too long already when it was looked at last."""

    number: int
    lasted_s: float
    computed_s: float


@attrs.define(eq=False)
class Watchdog:
    """Watches the loop of the thread that enters it; `clock` is that loop's selector.

    With a limit of 0 ms it does nothing. `_running` is held while the watchdog runs: to wait for a
    lock costs less than to wait for an event.
    """

    clock: TurnClock
    limit_ms: int
    looks: int = 0
    _running: threading.Lock = attrs.field(factory=threading.Lock)
    _thread: threading.Thread | None = None
    _watched: int = 0
    _computed_s: float = 0.0
    _turn: int = -1
    _long: _LongTurn | None = None
    _stack_at: float = -STACK_INTERVAL_S

    def __enter__(self) -> Watchdog:
        if self.limit_ms > 0:
            self.clock.limit_s = self.limit_ms / 1000

            # The thread that enters runs the loop.
            self._watched = threading.get_ident()
            self._running.acquire()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The thread waits for the lock: to release it ends the thread.
        if self._thread is not None:
            self._running.release()
            self._thread.join()

        if self.clock.long_turns:
            logger.warning(
                "%d turns of the event loop have lasted %d ms or longer, the longest %.3f s",
                self.clock.long_turns,
                self.limit_ms,
                self.clock.longest_s,
            )

    def _watch(self) -> None:
        # The processor time of the loop's thread, which this one may read.
        thread_clock = time.pthread_getcpuclockid(self._watched)
        pause_s = self.clock.limit_s
        turns = 0
        while not self._running.acquire(timeout=pause_s):
            self.look(time.monotonic(), lambda: time.clock_gettime(thread_clock))

            # Look less often while the loop rests.
            new_turns = self.clock.turns - turns
            turns = self.clock.turns
            is_resting = self.clock.began is None and new_turns <= RESTING_TURNS
            pause_s = self.clock.limit_s * (RESTING_LIMITS if is_resting else 1)

    def look(self, now: float, computed_s: Callable[[], float]) -> None:
        """Check how long the current turn lasts.

        `computed_s()` is the processor time of the loop's thread since its start.
        """
        self.looks += 1
        # Copies: the loop goes on while this looks.
        turn = self.clock.turns
        began = self.clock.began

        # The long turn of the last look has ended.
        if self._long is not None and (began is None or turn != self._long.number):
            self._log_end(self._long)
            self._long = None

        # Note where a new turn begins.
        if began is None:
            self._turn = -1
        elif turn != self._turn:
            self._turn = turn
            self._computed_s = computed_s()

        # Long already, and not over.
        if began is not None and now - began >= self.clock.limit_s:
            self._note_long_turn(turn, now, now - began, computed_s() - self._computed_s)

    def _note_long_turn(self, turn: int, now: float, lasted_s: float, computed_s: float) -> None:
        if self._long is None:
            self._long = _LongTurn(turn, lasted_s, computed_s)
            if now - self._stack_at >= STACK_INTERVAL_S:
                self._stack_at = now
                self._log_stack(lasted_s)

        # The last look says how long it took at least.
        self._long.lasted_s = lasted_s
        self._long.computed_s = computed_s

    def _log_stack(self, lasted_s: float) -> None:
        # No frame: the thread has ended.
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "?"
        logger.warning("the event loop has been in one turn for %.3f s:\n%s", lasted_s, stack)

    def _log_end(self, turn: _LongTurn) -> None:
        logger.warning(
            "a turn of the event loop took %.3f s, and %.3f s of the processor",
            turn.lasted_s,
            turn.computed_s,
        )
