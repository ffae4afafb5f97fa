"""Log when the event loop stops, and where (`kgroup.event.loop.watchdog.ms`).

All clients, followers and the controller wait for one loop, so a turn of it must be short.

A `TurnClock` is the loop's own selector and notes when a turn begins and ends, and what it took of
the processor, which costs three reads of clocks. A thread looks at these notes as often as a turn
may take, and less often while the loop rests. During a turn that is too long, it logs the loop's
stack: once a turn, and once a second at most. After that turn, or one that was too long and ended
before anybody looked, it logs how long the turn took, and how much of that was computing; the rest
was waiting, for a disk or a processor. Where the thread itself could not look, the machine slept or
the process was stopped: no stack would say why.
"""

from __future__ import annotations

import logging
import selectors
import sys
import threading
import time
import traceback
from collections import deque
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
EVENTS_A_TURN = 32
"""Sockets that are read or written in one turn. A read brings 256 KB at most, in 0.2 ms and twice
that with TLS; 500 of them took a turn of 108 ms."""
KEPT_TURNS = 100
"""Turns that were too long and are kept until they are logged: more than end between two looks."""


@attrs.frozen
class LongTurn:
    """A turn that was too long and has ended: its time, and that of the processor in it."""

    took_s: float
    computed_s: float


class TurnClock(selectors.DefaultSelector):
    """A selector that knows whether the loop works, and since when.

    Of the sockets that are ready it returns `EVENTS_A_TURN`, and the others in the next turns.

    `limit_s` is the longest time for a turn. Longer turns are counted as they end, and kept in
    `ended`. `began` is the start of the current turn by the monotonic clock, None while the loop
    waits.
    """

    def __init__(self, limit_s: float = float("inf")) -> None:
        super().__init__()
        self.limit_s = limit_s
        self.turns = 0
        self.long_turns = 0
        self.longest_s = 0.0
        self.began: float | None = None
        self.ended: deque[LongTurn] = deque(maxlen=KEPT_TURNS)
        self._computed_s = 0.0
        self._left: deque[tuple[selectors.SelectorKey, int]] = deque()

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
                self.ended.append(LongTurn(took_s, time.thread_time() - self._computed_s))

        # The wait in between belongs to no turn.
        self.began = None
        ready = self._take_left() if self._left else super().select(timeout)
        if len(ready) > EVENTS_A_TURN:
            self._left.extend(ready[EVENTS_A_TURN:])
            ready = ready[:EVENTS_A_TURN]
        self.turns += 1
        self._computed_s = time.thread_time()
        self.began = time.monotonic()
        return ready

    def _take_left(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Take events that an earlier turn has left, but for those that nobody wants any more."""
        keys = self.get_map()
        taken: list[tuple[selectors.SelectorKey, int]] = []
        while self._left and len(taken) < EVENTS_A_TURN:
            key, mask = self._left.popleft()
            # A socket may be closed, and its number be another's by now.
            if keys.get(key.fd) is key:
                taken.append((key, mask))
        return taken


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
    _seen: int = -1
    """The number of the last turn that was seen to be too long."""
    _stack_at: float = -STACK_INTERVAL_S
    _still_turn: int = -1
    _still_s: float = 0.0
    """The time for which all stood still since a turn began, and its number."""

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
            self._log_ended()

        if self.clock.long_turns:
            logger.warning(
                "%d turns of the event loop have lasted %d ms or longer, the longest %.3f s",
                self.clock.long_turns,
                self.limit_ms,
                self.clock.longest_s,
            )

    def _watch(self) -> None:
        pause_s = self.clock.limit_s
        turns = 0
        began = time.monotonic()
        while not self._running.acquire(timeout=pause_s):
            now = time.monotonic()
            self.look(now, late_s=now - began - pause_s)

            # Look less often while the loop rests.
            new_turns = self.clock.turns - turns
            turns = self.clock.turns
            is_resting = self.clock.began is None and new_turns <= RESTING_TURNS
            pause_s = self.clock.limit_s * (RESTING_LIMITS if is_resting else 1)
            began = time.monotonic()

    def look(self, now: float, late_s: float = 0.0) -> None:
        """Log the long turns that have ended, and where the loop is in a turn that is long already.

        `now` is the time by the monotonic clock, and `late_s` how much later it is than meant.
        """
        self.looks += 1
        # Copies: the loop goes on while this looks.
        turn = self.clock.turns
        began = self.clock.began

        self._log_ended()
        if began is None:
            return

        # A machine that slept has no turn of 30 s (fault outside-O16, was: 0.0).
        still_s = self._stood_still_s(turn, late_s)
        lasted_s = now - began - still_s
        if lasted_s < self.clock.limit_s or turn == self._seen:
            return
        self._seen = turn
        if now - self._stack_at >= STACK_INTERVAL_S:
            self._stack_at = now
            self._log_stack(lasted_s)

    def _stood_still_s(self, turn: int, late_s: float) -> float:
        """Return for how long all stood still in a turn, at whose end a look was late."""
        if turn != self._still_turn:
            self._still_turn, self._still_s = turn, 0.0
        if late_s >= self.clock.limit_s:
            self._still_s += late_s
        return self._still_s

    def _log_stack(self, lasted_s: float) -> None:
        # No frame: the thread has ended.
        frame = sys._current_frames().get(self._watched)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "?"
        logger.warning("the event loop has been in one turn for %.3f s:\n%s", lasted_s, stack)

    def _log_ended(self) -> None:
        while self.clock.ended:
            turn = self.clock.ended.popleft()
            logger.warning(
                "a turn of the event loop took %.3f s, and %.3f s of the processor",
                turn.took_s,
                turn.computed_s,
            )
