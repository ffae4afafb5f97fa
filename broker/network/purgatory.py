"""Requests that wait: each is tried when one of its keys is touched, and ended at its time.

What grows, as a log's end does, wakes by how far it has come: a request that waits for an offset is
tried when that is reached, and costs nothing before.

A handler that cannot answer yet returns a `Wait`. The purgatory ends it exactly once: when
`try_complete(False)` has a response, or at the timeout, when `try_complete(True)` must have one.
It keeps no list of what is done: a request leaves all its keys the moment it ends.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Any

import attrs


@attrs.frozen
class Wait:
    """An answer that is not due yet.

    `try_complete(expired)` returns the response, or None while there is none to give; with
    `expired` true it must return one. It may return another `Wait`: there is something else to
    wait for first. `timeout_ms` counts from now. `offsets`: keys with the offset of each that is
    waited for.
    """

    keys: tuple[Hashable, ...]
    timeout_ms: int
    try_complete: Callable[[bool], Any]
    offsets: tuple[tuple[Hashable, int], ...] = ()


@attrs.define(eq=False)
class Parked:
    """One waiting request: what it waits for, who gets the answer, and its timer; by `number` they
    are in the order in which they came."""

    wait: Wait
    done: Callable[[Any], None]
    number: int
    timer: asyncio.TimerHandle | None = None


class Purgatory:
    """All waiting requests of a broker, by key."""

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        self._by_offset: dict[Hashable, list[tuple[int, int, Parked]]] = {}  # in order
        self._numbers = 0
        self.parked = 0
        self.tries = 0

    def park(self, wait: Wait, done: Callable[[Any], None]) -> Parked | None:
        """Hold a request until it can be answered by calling `done(response)`.

        The handler has tried already, and nothing can have changed since: it ran in the same
        turn of the event loop. A timeout of zero or less is answered at once.
        """
        if wait.timeout_ms <= 0:
            done(wait.try_complete(True))
            return None
        self._numbers += 1
        parked = Parked(wait, done, self._numbers)
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(wait.timeout_ms / 1000, self._expire, parked)

        for key in wait.keys:
            self._by_key.setdefault(key, {})[parked] = None
        for key, offset in wait.offsets:
            waiting = self._by_offset.setdefault(key, [])
            place = bisect_left(waiting, _place(offset, parked.number), key=_order)
            waiting.insert(place, (offset, parked.number, parked))
        self.parked += 1
        return parked

    def touch(self, *keys: Hashable) -> None:
        """Something changed under these keys: try those that wait for any of them, once each."""
        waiting: list[Parked] = []
        for key in keys:
            waiting += self._by_key.get(key, ())
            if key in self._by_offset:
                waiting += [parked for _, _, parked in self._by_offset[key]]
        if waiting:
            self._try(dict.fromkeys(waiting))

    def reached(self, key: Hashable, offset: int) -> None:
        """What the key stands for has grown up to `offset`: try those that wait for that or less,
        and those that wait for whatever comes."""
        due = list(self._by_key.get(key, ()))
        waiting = self._by_offset.get(key)
        if waiting:
            number = bisect_right(waiting, _place(offset, inf), key=_order)
            due += [parked for _, _, parked in waiting[:number]]
            del waiting[:number]
            if not waiting:
                del self._by_offset[key]
        if due:
            self._try(due)

    def drop(self, parked: Parked) -> None:
        """Forget a request whose connection is gone."""
        if parked.timer is not None:
            self._end(parked)

    def expire_all(self) -> None:
        """End every request as if its time were up: the broker is stopping."""
        waiting = [parked for by_key in self._by_key.values() for parked in by_key]
        waiting += [parked for by_key in self._by_offset.values() for _, _, parked in by_key]
        for parked in dict.fromkeys(waiting):
            if parked.timer is not None:
                self._expire(parked)

    def _try(self, waiting: Iterable[Parked]) -> None:
        for parked in waiting:
            if parked.timer is not None:
                self.tries += 1
                response = parked.wait.try_complete(False)
                if response is not None:
                    self._end(parked)
                    parked.done(response)

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
        for key, offset in parked.wait.offsets:
            self._leave(key, offset, parked)

    def _leave(self, key: Hashable, offset: int, parked: Parked) -> None:
        """Take a request out from under an offset, unless that was reached before."""
        waiting = self._by_offset.get(key, [])
        place = bisect_left(waiting, _place(offset, parked.number), key=_order)
        if place < len(waiting) and waiting[place][2] is parked:
            del waiting[place]
            if not waiting:
                del self._by_offset[key]


def _place(offset: int, number: float) -> tuple[float, float]:
    return offset, number


def _order(waiting: tuple[int, int, Parked]) -> tuple[float, float]:
    return waiting[:2]
