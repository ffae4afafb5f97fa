"""Timers that bring events, for those who perform the effects of decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs


@attrs.define(eq=False)
class EventTimers:
    """The timers of one state. `handle_event` is called with the event of a timer that ends.

    Equal events share one timer: setting it again moves it. A decision cannot cancel a timer. It
    ignores an event that came too late, as its fields tell.
    """

    handle_event: Callable[[Any], None]
    _timers: dict[Any, asyncio.TimerHandle] = attrs.field(factory=dict)

    def set(self, event: Any, delay_ms: float) -> None:
        """Handle `event` after `delay_ms`."""
        former = self._timers.pop(event, None)
        if former is not None:
            former.cancel()
        loop = asyncio.get_running_loop()
        self._timers[event] = loop.call_later(delay_ms / 1000, self._end, event)

    def cancel_all(self) -> None:
        """Handle no event any more: the state has come to its end."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _end(self, event: Any) -> None:
        # Delete first: what follows may set the same timer again.
        del self._timers[event]
        self.handle_event(event)
