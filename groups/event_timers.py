"""Timers that bring events, for those who perform the effects of decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs


@attrs.define(eq=False)
class _Timer:
    """A timer of the loop. It may ring before `deadline_s`, and is then set for the rest."""

    handle: asyncio.TimerHandle
    deadline_s: float


@attrs.define(eq=False)
class EventTimers:
    """The timers of one state. `handle_event` is called with the event of a timer that ends.

    Equal events share one timer: setting it again moves it. A decision cannot cancel a timer. It
    ignores an event that came too late, as its fields tell.

    Most timers are sessions, which each heartbeat moves further away: that costs no more than to
    note the new time.
    """

    handle_event: Callable[[Any], None]
    _timers: dict[Any, _Timer] = attrs.field(factory=dict)

    def set(self, event: Any, delay_ms: float) -> None:
        """Handle `event` after `delay_ms`."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + delay_ms / 1000

        timer = self._timers.get(event)
        if timer is not None:
            timer.deadline_s = deadline_s
            # It rings no later than that, and looks again.
            if timer.handle.when() <= deadline_s:
                return
            timer.handle.cancel()
        handle = loop.call_at(deadline_s, self._ring, event)
        self._timers[event] = _Timer(handle, deadline_s)

    def cancel_all(self) -> None:
        """Handle no event any more: the state has come to its end."""
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()

    def _ring(self, event: Any) -> None:
        timer = self._timers[event]
        # It was moved in the meantime.
        if timer.handle.when() < timer.deadline_s:
            loop = asyncio.get_running_loop()
            timer.handle = loop.call_at(timer.deadline_s, self._ring, event)
            return

        # Delete first: what follows may set the same timer again.
        del self._timers[event]
        self.handle_event(event)
