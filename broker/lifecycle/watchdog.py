"""Tell when the event loop stops, and where (`kgroup.event.loop.watchdog.ms`).

All clients, followers and the controller wait for one loop, so a turn of it must be short. A
`TurnClock` is the loop's own selector and notes when a turn begins and ends, which costs two looks
at a clock. A thread looks at the notes as often as a turn may take, and less often while the loop
rests. When a turn lasts too long, it logs what the loop is doing: once a turn, and once a second at
most; and when that turn is over, how long it was at least, and how much of that was spent
computing: the rest was waiting, for a disk or a processor. A turn that is over before anybody looks
is counted all the same.
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

logger = logging.getLogger(__name__)

RESTING_TURNS = 10
RESTING_LIMITS = 4
"""A loop that has made no more turns than this since the last look, and waits, is left alone for so
many times as long: waking up ten times a second costs more than all that is done then."""
STACK_INTERVAL_S = 1.0
"""A stack is logged no more often."""


class TurnClock(selectors.DefaultSelector):
    """A selector that knows whether the loop works, and since when.

    `limit_s` is what a turn may take; those that took longer are counted as they end.
    """

    def __init__(self, limit_s: float = float("inf")) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.turns = 0
        self.long_turns = 0
        self.longest_s = 0.0
        self.began: float | None = None
        """By the monotonic clock, None while the loop waits."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """End a turn, wait, and begin the next one."""
        if self.began is not None:
            took_s = time.monotonic() - self.began
            if took_s >= self.limit_s:
                self.long_turns += 1
                self.longest_s = max(self.longest_s, took_s)
        self.began = None
        ready = super().select(timeout)
        self.turns += 1
        self.began = time.monotonic()
        return ready


@attrs.define(eq=False)
class _LongTurn:
    """One that is too long already, when it was looked at last."""

    number: int
    lasted_s: float
    computed_s: float


@attrs.define(eq=False)
class Watchdog:
    """Watches the loop of the thread that enters it, whose selector is `clock`. Without a limit
    (0 ms) nobody looks."""

    clock: TurnClock
    limit_ms: int
    looks: int = 0
    _running: threading.Lock = attrs.field(factory=threading.Lock)
    """Held while it runs: waiting for a lock costs less than waiting for an event."""
    _thread: threading.Thread | None = None
    _watched: int = 0
    _computed_s: float = 0.0
    _turn: int = -1
    _long: _LongTurn | None = None
    _stack_at: float = -STACK_INTERVAL_S

    def __enter__(self) -> Watchdog:
        if self.limit_ms > 0:
            self.clock.limit_s = self.limit_ms / 1000
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
        computing = time.pthread_getcpuclockid(self._watched)
        pause_s, turns = self.clock.limit_s, 0
        while not self._running.acquire(timeout=pause_s):
            self.look(time.monotonic(), lambda: time.clock_gettime(computing))
            turns, since = self.clock.turns, self.clock.turns - turns
            rests = self.clock.began is None and since <= RESTING_TURNS
            pause_s = self.clock.limit_s * (RESTING_LIMITS if rests else 1)

    def look(self, now: float, computed_s: Callable[[], float]) -> None:
        """See how long the turn lasts that is made now; `computed_s()` is what the loop's thread
        has computed since it began."""
        self.looks += 1
        turn, began = self.clock.turns, self.clock.began
        if self._long is not None and (began is None or turn != self._long.number):
            self._tell_end(self._long)
            self._long = None
        if began is None:
            self._turn = -1
        elif turn != self._turn:
            self._turn, self._computed_s = turn, computed_s()
        if began is not None and now - began >= self.clock.limit_s:
            self._note(turn, now, now - began, computed_s() - self._computed_s)

    def _note(self, turn: int, now: float, lasted_s: float, computed_s: float) -> None:
        if self._long is None:
            self._long = _LongTurn(turn, lasted_s, computed_s)
            if now - self._stack_at >= STACK_INTERVAL_S:
                self._stack_at = now
                self._tell_stack(lasted_s)
        self._long.lasted_s, self._long.computed_s = lasted_s, computed_s

    def _tell_stack(self, lasted_s: float) -> None:
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "?"
        logger.warning("the event loop has been in one turn for %.3f s:\n%s", lasted_s, stack)

    def _tell_end(self, turn: _LongTurn) -> None:
        logger.warning(
            "a turn of the event loop took %.3f s, and %.3f s of the processor",
            turn.lasted_s,
            turn.computed_s,
        )
