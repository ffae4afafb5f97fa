"""A timer of an event loop that knows when it is due, on each kind of loop."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class Timer:
    """Calls `callback` once, at `due_s` on the loop's clock, unless it is cancelled before."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        due_s: float,
        callback: Callable[[], object],
        context: Context | None = None,
    ) -> None:
        self._due_s = due_s
        self._handle = loop.call_at(due_s, callback, context=context)

    def when(self) -> float:
        """Return when it is, or was, due."""
        # uvloop's handle does not tell if the timer is due within half a millisecond
        # (fault users-2, was: self._handle.when()).
        return self._due_s

    def cancel(self) -> None:
        """Call nothing any more."""
        self._handle.cancel()
