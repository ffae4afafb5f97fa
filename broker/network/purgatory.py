"""Park requests that wait: try one when a key of it is touched, end it at its timeout.

Some things grow, such as the end of a log. A request may wait under such a key for an offset: it is
tried when the key has come so far, and costs nothing before.

A handler that has no response yet returns a `Wait`. The purgatory ends it exactly once: when
`try_complete(False)` returns a response, or at the timeout, when `try_complete(True)` must return
one. It keeps no list of ended requests: a request leaves all its keys the moment it ends.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import islice
from math import inf
from typing import Any, Protocol

import attrs

from protocol.frozen import frozen


class Work(Protocol):
    """Work that holds a request, and may go on when nobody waits for it any more."""

    @property
    def is_done(self) -> bool:
        """True if it holds nothing any more."""

    def call_when_done(self, then: Callable[[], None]) -> None:
        """Call `then()` once it is done."""


TRIED_A_TURN = 100
"""Most requests that are tried in one turn of the loop: each may read from a log, and respond."""


@frozen
class Wait:
    """A response that is not due yet.

    `try_complete(expired)` returns the response, or None as long as there is none. With `expired`
    true it must return one. It may return another `Wait` if something else must happen first.
    `timeout_ms` counts from now. `offsets` has keys that grow, with the offset to wait for.
    `note_moved(key)` is called before a try with the key that brings it about, so that a wait for
    many keys need not look at all of them each time. `on_cancel()` is called if the connection goes
    before there is a response. `work` is what the response comes from, where that is not over with
    the wait. `subject` is the key of the request's API, where requests are counted. `request` is
    what is kept of the request meanwhile, if not all of it.
    """

    keys: tuple[Hashable, ...]
    timeout_ms: int
    try_complete: Callable[[bool], Any]
    offsets: tuple[tuple[Hashable, int], ...] = ()
    note_moved: Callable[[Hashable], None] | None = None
    on_cancel: Callable[[], None] | None = None
    work: Work | None = None
    subject: int = -1
    request: Any = None


@attrs.define(eq=False)
class Parked:
    """A request that waits.

    `respond` takes its response, `number` counts requests in the order in which they were parked.
    The timer is None once the request has ended.
    """

    wait: Wait
    respond: Callable[[Any], None]
    number: int
    timer: asyncio.TimerHandle | None = None


class Purgatory:
    """All parked requests of a broker, by key.

    `parked` is their number now, `tries` the calls of `try_complete` so far.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[Parked, None]] = {}
        # In order of offset, and of number for the same offset.
        self._by_offset: dict[Hashable, list[tuple[int, int, Parked]]] = {}
        self._untried: dict[Parked, None] = {}
        self._is_trying = False
        self._numbers = 0
        self.parked = 0
        self.tries = 0

    def park(self, wait: Wait, respond: Callable[[Any], None]) -> Parked | None:
        """Keep a request until it has a response; then call `respond(response)`.

        The request is not tried now: its handler has tried in the same turn of the event loop, and
        nothing can have changed since. With a timeout of zero or less it ends at once.
        """
        if wait.timeout_ms <= 0:
            respond(wait.try_complete(True))
            return None

        self._numbers += 1
        parked = Parked(wait, respond, self._numbers)
        loop = asyncio.get_running_loop()
        parked.timer = loop.call_later(wait.timeout_ms / 1000, self._expire, parked)

        # The keys without an offset, then those with one.
        for key in wait.keys:
            self._by_key.setdefault(key, {})[parked] = None
        for key, offset in wait.offsets:
            waiting = self._by_offset.setdefault(key, [])
            index = bisect_left(waiting, _rank(offset, parked.number), key=_rank_of)
            waiting.insert(index, (offset, parked.number, parked))
        self.parked += 1
        return parked

    def touch(self, *keys: Hashable) -> None:
        """Try the requests that wait under any of these keys, each of them once."""
        waiting: dict[Parked, None] = {}
        for key in keys:
            # A copy: a try may end requests, and park others.
            touched = list(self._by_key.get(key, ()))
            if key in self._by_offset:
                touched += [parked for _, _, parked in self._by_offset[key]]
            if touched:
                _note_moved(touched, key)
                waiting.update(dict.fromkeys(touched))

        if waiting:
            self._try_soon(waiting)

    def advance(self, key: Hashable, offset: int) -> None:
        """Try the requests that wait under a key which has grown up to `offset`.

        These are the requests that wait for this offset or a lower one, and those that wait for no
        offset.
        """
        # With nobody parked there is nothing to look up.
        if not self.parked:
            return

        due = list(self._by_key.get(key, ()))
        waiting = self._by_offset.get(key)
        if waiting:
            # All requests that wait for this offset, whatever their numbers.
            number = bisect_right(waiting, _rank(offset, inf), key=_rank_of)
            due += [parked for _, _, parked in waiting[:number]]
            # They leave the list first: a try may park other requests under the same key.
            del waiting[:number]
            if not waiting:
                del self._by_offset[key]

        if due:
            _note_moved(due, key)
            self._try_soon(due)

    def cancel(self, parked: Parked) -> None:
        """End a request without a response, because its connection is gone."""
        if parked.timer is not None:
            self._end(parked)
            if parked.wait.on_cancel is not None:
                parked.wait.on_cancel()

    def expire_all(self) -> None:
        """End every request as if it had timed out, because the broker stops."""
        for parked in self._all_parked():
            if parked.timer is not None:
                self._expire(parked)

    def subjects(self) -> Counter[int]:
        """Return how many requests of each subject are parked."""
        return Counter(parked.wait.subject for parked in self._all_parked())

    def _all_parked(self) -> list[Parked]:
        """Return each parked request once, though it may wait under several keys."""
        waiting = [parked for by_key in self._by_key.values() for parked in by_key]
        waiting += [parked for by_key in self._by_offset.values() for _, _, parked in by_key]
        return list(dict.fromkeys(waiting))

    def _try_soon(self, waiting: Collection[Parked]) -> None:
        """Try some requests in this turn of the loop, and the others in the next ones."""
        # Thousands may read the end of one log (fault strangers-57, was: True).
        is_few = len(waiting) <= TRIED_A_TURN
        if is_few:
            self._try(waiting)
            return

        # What has not been tried yet is tried once, however often it is touched meanwhile.
        self._untried.update(dict.fromkeys(waiting))
        if not self._is_trying:
            self._try_some()

    def _try_some(self) -> None:
        some = list(islice(self._untried, TRIED_A_TURN))
        for parked in some:
            del self._untried[parked]

        self._is_trying = True
        try:
            self._try(some)
        finally:
            self._is_trying = bool(self._untried)
            if self._is_trying:
                asyncio.get_running_loop().call_soon(self._try_some)

    def _try(self, waiting: Iterable[Parked]) -> None:
        for parked in waiting:
            # The end of one request may have ended others.
            if parked.timer is not None:
                self.tries += 1
                response = parked.wait.try_complete(False)
                if response is not None:
                    # It leaves its keys before it responds: the response may touch them.
                    self._end(parked)
                    parked.respond(response)

    def _expire(self, parked: Parked) -> None:
        self._end(parked)
        parked.respond(parked.wait.try_complete(True))

    def _end(self, parked: Parked) -> None:
        assert parked.timer is not None, "a parked request ends once"
        parked.timer.cancel()
        parked.timer = None
        self.parked -= 1
        assert self.parked >= 0, "no more requests end than were parked"

        for key in parked.wait.keys:
            waiting = self._by_key.get(key, {})
            waiting.pop(parked, None)
            if not waiting:
                self._by_key.pop(key, None)
        for key, offset in parked.wait.offsets:
            self._remove_offset(key, offset, parked)

    def _remove_offset(self, key: Hashable, offset: int, parked: Parked) -> None:
        """Remove a request from the list of a key, unless `advance` has removed it before."""
        waiting = self._by_offset.get(key, [])
        index = bisect_left(waiting, _rank(offset, parked.number), key=_rank_of)
        if index < len(waiting) and waiting[index][2] is parked:
            del waiting[index]
            if not waiting:
                del self._by_offset[key]


def _note_moved(waiting: Iterable[Parked], key: Hashable) -> None:
    for parked in waiting:
        if parked.wait.note_moved is not None and parked.timer is not None:
            parked.wait.note_moved(key)


def _rank(offset: int, number: float) -> tuple[float, float]:
    return offset, number


def _rank_of(waiting: tuple[int, int, Parked]) -> tuple[float, float]:
    return waiting[:2]
