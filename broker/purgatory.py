"""Requests that wait: each is tried when one of its keys is touched, and ended at its time.

A handler that cannot answer yet returns a `Wait`. The purgatory ends it exactly once: when
`try_complete(False)` has a response, or at the timeout, when `try_complete(True)` must have one.
It keeps no list of what is done: a request leaves all its keys the moment it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Any

import attrs


class NoAnswer:
    """What a `Wait` ends with when nothing is to be sent, where None would say "not yet"."""


NO_ANSWER = NoAnswer()


@attrs.frozen
class Wait:
    """An answer that is not due yet.

    `try_complete(expired)` returns the response, or None while there is none to give; with
    `expired` true it must return one. It may return another `Wait`: there is something else to
    wait for first. `timeout_ms` counts from now.
    """

    keys: tuple[Hashable, ...]
    timeout_ms: int
    try_complete: Callable[[bool], Any]


@attrs.define(eq=False)
class Parked:
    """One waiting request: what it waits for, who gets the answer, and its timer."""

    wait: Wait
    done: Callable[[Any], None]
    timer: asyncio.TimerHandle | None = None


class Purgatory:
    """All waiting requests of a broker, by key."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        self.parked = 0

    def park(self, wait: Wait, done: Callable[[Any], None]) -> Parked | None:
        """Hold a request until it can be answered by calling `done(response)`.

        The handler has tried already, and nothing can have changed since: it ran in the same
        turn of the event loop. A timeout of zero or less is answered at once.
        """
        if wait.timeout_ms <= 0:
            done(wait.try_complete(True))
            return None
        parked = Parked(wait, done)
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(wait.timeout_ms / 1000, self._expire, parked)
        for key in wait.keys:
            self._by_key.setdefault(key, {})[parked] = None
        self.parked += 1
        return parked

    def touch(self, *keys: Hashable) -> None:
        """Something changed under these keys: try those that wait for any of them, once each."""
        for parked in dict.fromkeys(p for key in keys for p in self._by_key.get(key, ())):
            if parked.timer is not None:
                response = parked.wait.try_complete(False)
                if response is not None:
                    self._end(parked)
                    parked.done(response)

    def drop(self, parked: Parked) -> None:
        """Forget a request whose connection is gone."""
        if parked.timer is not None:
            self._end(parked)

    def expire_all(self) -> None:
        """End every request as if its time were up: the broker is stopping."""
        for parked in [p for waiting in list(self._by_key.values()) for p in list(waiting)]:
            if parked.timer is not None:
                self._expire(parked)

    def _expire(self, parked: Parked) -> None:
        self._end(parked)
        parked.done(parked.wait.try_complete(True))

    def _end(self, parked: Parked) -> None:
        assert parked.timer is not None, "a waiting request ends once"
        parked.timer.cancel()
        parked.timer = None
        self.parked -= 1
        for key in parked.wait.keys:
            waiting = self._by_key.get(key, {})
            waiting.pop(parked, None)
            if not waiting:
                self._by_key.pop(key, None)
