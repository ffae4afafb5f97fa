"""Timers that bring events, for those who perform the effects of decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
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
    # One for all: there are as many timers as members, and each would make its own.
    _context: Context = attrs.field(factory=copy_context)
    _callback: Callable[[Any], None] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._callback = self._ring

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
        handle = loop.call_at(deadline_s, self._callback, event, context=self._context)
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
            timer.handle = loop.call_at(
                timer.deadline_s, self._callback, event, context=self._context
            )
            return

        # Delete first: what follows may set the same timer again.
        del self._timers[event]
        self.handle_event(event)
