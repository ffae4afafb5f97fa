"""Timers that bring events, for those who perform the effects of decisions."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

import attrs

from protocol.stalls import PUT_OFF_S, STALL_S
from protocol.timer import Timer


@attrs.define(eq=False, weakref_slot=False)
class _Timer:
    """A timer in the heap: due at `deadline_s`, looked at no later, at `look_s` (loop's clock)."""

    event: Any
    look_s: float
    deadline_s: float

    def __lt__(self, other: _Timer) -> bool:
        return self.look_s < other.look_s


@attrs.define(eq=False)
class EventTimers:
    """The timers of one state. `handle_event` is called with the event of a timer that ends.

    Equal events share one timer: setting it again moves it. A decision cannot cancel a timer. It
    ignores an event that came too late, as its fields tell.

    There are as many timers as members, and nearly all are sessions, which each heartbeat moves
    further away. So all of them share one timer of the loop, and to move one away is to note its
    new time: when it comes up before that, it goes back into the heap.

    When the loop has stood still, what is due is put off once (`protocol.stalls`): a heartbeat that
    lies in its socket has not been heard yet.
    """

    handle_event: Callable[[Any], None]
    _timers: dict[Any, _Timer] = attrs.field(factory=dict)
    _heap: list[_Timer] = attrs.field(factory=list)
    _handle: Timer | None = None
    _not_before_s: float = 0.0
    """What is put off comes no sooner."""
    # Not that of the caller who happens to set the loop's timer.
    _context: Context = attrs.field(factory=copy_context)

    def __len__(self) -> int:
        """Return the number of events that have a timer."""
        return len(self._timers)

    def set(self, event: Any, delay_ms: float) -> None:
        """Handle `event` after `delay_ms`."""
        deadline_s = asyncio.get_running_loop().time() + delay_ms / 1000
        timer = self._timers.get(event)
        if timer is not None and timer.look_s <= deadline_s:
            timer.deadline_s = deadline_s
            return

        # The former timer of the event stays in the heap, and is passed over.
        timer = self._timers[event] = _Timer(event, deadline_s, deadline_s)
        heapq.heappush(self._heap, timer)
        if len(self._heap) > 2 * len(self._timers):
            self._drop_former()
        self._ring_by(deadline_s)

    def cancel_all(self) -> None:
        """Handle no event any more: the state has come to its end."""
        self._timers.clear()
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _drop_former(self) -> None:
        """Drop the timers that are passed over: some would be so in days."""
        self._heap = [timer for timer in self._heap if self._timers.get(timer.event) is timer]
        heapq.heapify(self._heap)

    def _ring_by(self, time_s: float) -> None:
        """Let the loop's timer ring at this time, or earlier."""
        time_s = max(time_s, self._not_before_s)
        if self._handle is not None:
            if self._handle.when() <= time_s:
                return
            self._handle.cancel()
        loop = asyncio.get_running_loop()
        self._handle = Timer(loop, time_s, self._ring, self._context)

    def _ring(self) -> None:
        assert self._handle is not None, "the loop's timer has rung"
        # The loop may ring a little early, by the resolution of its clock.
        due_s = self._handle.when()
        now_s = max(due_s, asyncio.get_running_loop().time())
        self._handle = None

        # Everybody seems silent to a process that stood still (fault groups-5).
        if now_s - due_s > STALL_S and due_s > self._not_before_s:
            self._not_before_s = now_s + PUT_OFF_S
            self._ring_by(self._not_before_s)
            return

        try:
            while self._heap and self._heap[0].look_s <= now_s:
                self._look_at(heapq.heappop(self._heap), now_s)
        finally:
            # An event that fails does not keep the others from coming.
            if self._heap:
                self._ring_by(self._heap[0].look_s)

    def _look_at(self, timer: _Timer, now_s: float) -> None:
        # It was moved to an earlier time, and has another one in its place.
        if self._timers.get(timer.event) is not timer:
            return
        if timer.deadline_s > now_s:
            timer.look_s = timer.deadline_s
            heapq.heappush(self._heap, timer)
            return

        # Delete first: what follows may set the same timer again.
        del self._timers[timer.event]
        self.handle_event(timer.event)
