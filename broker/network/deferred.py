"""Responses that need a coroutine, or work that is too long for the event loop.

A handler is a plain function. Work that it cannot finish at once is started here as a task of the
broker, and the handler returns a `Wait` for it. The threads are shared by all clients in turns
(`fair_line`), and so are the turns of the loop in which long answers are made.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable, Iterable
from concurrent.futures import Executor
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import attrs

from broker.network.dispatch import Close, Outcome
from broker.network.down_conversion import ConvertedBytes
from broker.network.fair_line import NOBODY, FairLine, Owner, Place
from broker.network.long_answers import LongAnswer
from broker.network.purgatory import Wait
from protocol.errors import ApiError, let_go
from protocol.shielded import wait_shielded

T = TypeVar("T")

THREADS = 2
"""For batches that take long to check, large requests, and records converted for old readers. A
codec works beside Python, but a conversion is all Python: a third thread would only be in the
way."""


LONG_ANSWERS = 8
"""Answers that are made in several turns of the loop at the same time, one of a client."""
QUICK_TURNS = 50
"""Turns after which an answer is one of the longest."""
LONGEST_ANSWERS = 2
"""The longest answers that are made at the same time."""
LONGEST_WAITING = 16
"""Of those that have begun and wait for that."""
ELEMENTS_A_TURN = 500
"""Elements that are made and encoded in one turn of the loop: some 5 ms."""

GOLDEN_RATIO = (5**0.5 - 1) / 2


class LineFull(Exception):
    """Whoever waited for a place will not have one: too much waits."""


@attrs.define(eq=False)
class _Result:
    """The outcome of some work, or its error, taken once. It is also the `Work` of a Wait."""

    outcome: Outcome | None = None
    error: Exception | None = None
    is_done: bool = False
    _when_done: list[Callable[[], None]] = attrs.field(factory=list)

    def call_when_done(self, then: Callable[[], None]) -> None:
        """Call `then()` once nothing holds the request any more."""
        self._when_done.append(then)

    def end(self) -> None:
        """Note that the work is done. It may be called again."""
        self.is_done = True
        while self._when_done:
            self._when_done.pop()()

    @property
    def is_there(self) -> bool:
        return self.outcome is not None or self.error is not None

    def take(self) -> Outcome | None:
        outcome, self.outcome = self.outcome, None
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                # The frame is in the traceback, and must not hold it.
                del error
        return outcome


@attrs.define(eq=False)
class Deferred:
    """Runs the work of requests outside their handlers.

    `spawn` starts a task of the broker, `touch` wakes the requests that wait under a key, and
    `executor` has the threads, for which works wait in `line`. Long answers wait in `answers`.
    `converted` bounds what conversions for old readers hold. `monotonic_s` is the threads' clock.
    """

    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    touch: Callable[[Hashable], None]
    executor: Executor
    converted: ConvertedBytes = attrs.field(factory=ConvertedBytes)
    line: FairLine = attrs.field(factory=lambda: FairLine(THREADS, THREADS))
    answers: FairLine = attrs.field(factory=lambda: FairLine(LONG_ANSWERS, 1))
    monotonic_s: Callable[[], float] = attrs.field(factory=lambda: time.monotonic)
    _chosen: int = 0
    _longest: FairLine = attrs.field(
        factory=lambda: FairLine(LONGEST_ANSWERS, 1, most_bytes=LONGEST_WAITING)
    )

    def respond(
        self,
        work: Coroutine[Any, Any, Outcome],
        timeout_ms: int,
        late: Callable[[], Outcome],
        *,
        only_asks: bool = False,
    ) -> Wait:
        """Return a Wait for the outcome of `work`, or for its exception.

        After `timeout_ms` the outcome is `late()`. The work still runs to its end, and what it
        holds counts until then; but what `only_asks` is given up when nobody waits for it.
        """
        result = _Result()

        async def run() -> None:
            try:
                result.outcome = await work
            except asyncio.CancelledError as error:
                # The task keeps it, and all that is in its traceback (fault security-3).
                let_go(error)
                raise
            except Exception as error:
                result.error = error
                if isinstance(error, ApiError):
                    # Its traceback has the result in it, and the request (fault security-0).
                    let_go(error)
            result.end()
            # A request that has timed out is not parked, and nothing happens.
            self.touch(result)

        def try_complete(expired: bool) -> Outcome | None:
            if result.is_there:
                return result.take()
            if not expired:
                return None
            give_up()
            return late()

        def give_up() -> None:
            if only_asks:
                # Else the requests of closed connections would wait and be worked on
                # (fault security-3).
                task.cancel()

        def end(_: object) -> None:
            # A task that was cancelled early has not begun.
            work.close()
            result.end()

        task = self.spawn(run())
        task.add_done_callback(end)
        return Wait((result,), timeout_ms, try_complete, on_cancel=give_up, work=result)

    def respond_in_turns(
        self,
        work: Callable[[], Outcome | None],
        timeout_ms: int,
        late: Callable[[], Outcome],
        asking: Owner | None = None,
        *,
        is_short: bool = True,
    ) -> Outcome:
        """Call `work` now, and again in each turn of the loop until it returns an outcome.

        `asking` is who waits meanwhile for a place among those whose answers are long. What is
        left of the work is given up if that connection goes. Without `is_short` it begins there.
        """
        # Most work ends in the first turn: nothing is parked.
        first = work() if is_short else None
        if first is not None:
            return first

        if asking is None:
            return self.respond(_finish(work), timeout_ms, late)
        return self.respond(self._finish_in_line(work, asking), timeout_ms, late, only_asks=True)

    async def _finish_in_line(self, work: Callable[[], Outcome | None], owner: Owner) -> Outcome:
        # What is made counts only when it is whole (fault strangers-6).
        place = await enter(self.answers, owner)
        try:
            outcome = await _go_on(work, QUICK_TURNS)
            if outcome is None:
                # Or who asks for little waits for a few who ask for very much (fault strangers-8).
                place.step_aside()
                outcome = await self._finish_longest(work, owner)
            return outcome
        finally:
            place.leave()

    async def _finish_longest(self, work: Callable[[], Outcome | None], owner: Owner) -> Outcome:
        try:
            place = await enter(self._longest, owner, 1)
        except LineFull:
            return Close("too many long answers wait")
        try:
            return await _finish(work)
        finally:
            place.leave()

    async def in_line(
        self, work: Callable[[], Coroutine[Any, Any, Outcome]], owner: Owner
    ) -> Outcome:
        """Perform long work of the loop when it has its place among the long answers."""
        # Or each client would have its turns at the same time (fault strangers-9).
        place = await enter(self.answers, owner)
        try:
            return await work()
        finally:
            place.leave()

    def respond_from_thread(
        self,
        work: Callable[[], T],
        timeout_ms: int,
        late: Callable[[], Outcome],
        then: Callable[[T], Outcome],
        owner: Owner,
        *,
        only_asks: bool = False,
    ) -> Wait:
        """Run blocking work in a thread; `then` turns its result into the outcome, on the loop."""

        async def run() -> Outcome:
            return then(await self.in_thread(work, owner))

        return self.respond(run(), timeout_ms, late, only_asks=only_asks)

    def choose_first(self, count: int) -> int:
        """Choose who of so many is first: far from the last choices, so that each is soon."""
        self._chosen += 1
        return int(self._chosen * GOLDEN_RATIO % 1 * count)

    async def in_thread(self, work: Callable[[], T], owner: Owner = NOBODY) -> T:
        """Run `work` in a thread; return what it returns, or raise what it raises.

        It has its turn among those of other clients, and ends when the thread has ended.
        """
        place = await enter(self.line, owner)
        try:
            return await _ended(asyncio.get_running_loop().run_in_executor(self.executor, work))
        finally:
            place.leave()


async def add_in_turns(answer: LongAnswer, elements: Iterable[Any]) -> None:
    """Add elements as they are made, some of them in each turn of the loop."""
    more = iter(elements)
    while some := list(islice(more, ELEMENTS_A_TURN)):
        answer.add(some)
        # The other connections come in between.
        await asyncio.sleep(0)


async def _go_on(work: Callable[[], Outcome | None], turns: int) -> Outcome | None:
    """Call `work` in so many turns of the loop, or until it returns an outcome."""
    outcome = None
    while outcome is None and turns:
        # The other connections come in between.
        await asyncio.sleep(0)
        outcome = work()
        turns -= 1
    return outcome


async def _finish(work: Callable[[], Outcome | None]) -> Outcome:
    outcome = None
    while outcome is None:
        outcome = await _go_on(work, QUICK_TURNS)
    return outcome


async def _ended(running: asyncio.Future[T]) -> T:
    try:
        return await wait_shielded(running)
    except asyncio.CancelledError:
        # A thread cannot be stopped, and holds what it works on.
        await asyncio.wait([running])
        raise
    finally:
        # Its error has this frame in its traceback, and the request (fault security-0).
        del running


async def enter(line: FairLine, owner: Owner, size: int = 0) -> Place:
    """Wait for a place in a line. Raises LineFull."""
    entered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    place = line.line_up(owner, size, partial(_tell, entered, True), partial(_tell, entered, False))
    try:
        is_inside = await entered
    except BaseException:
        # Who is gone waits no more, and the place is for the next (fault security-3).
        place.leave()
        raise
    if not is_inside:
        raise LineFull("too much waits")
    return place


def _tell(entered: asyncio.Future[bool], is_inside: bool) -> None:
    if not entered.done():
        entered.set_result(is_inside)
