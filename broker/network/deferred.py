"""Responses that need a coroutine, or work that is too long for the event loop.

A handler is a plain function. Work that it cannot finish at once is started here as a task of the
broker, and the handler returns a `Wait` for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Executor
from typing import Any, TypeVar

import attrs

from broker.network.dispatch import Outcome
from broker.network.down_conversion import ConvertedBytes
from broker.network.purgatory import Wait
from protocol.errors import ApiError, let_go

T = TypeVar("T")


@attrs.define(eq=False)
class _Result:
    """The outcome of some work, or its error, which is raised once."""

    outcome: Outcome | None = None
    error: Exception | None = None

    @property
    def is_there(self) -> bool:
        return self.outcome is not None or self.error is not None

    def take(self) -> Outcome | None:
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                # The frame is in the traceback, and must not hold it.
                del error
        return self.outcome


@attrs.define(eq=False)
class Deferred:
    """Runs the work of requests outside their handlers.

    `spawn` starts a task of the broker, `touch` wakes the requests that wait under a key, and
    `executor` has the threads. `converted` bounds what conversions for old readers hold.
    """

    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    executor: Executor
    converted: ConvertedBytes = attrs.field(factory=ConvertedBytes)

    def respond(
        self, work: Coroutine[Any, Any, Outcome], timeout_ms: int, late: Callable[[], Outcome]
    ) -> Wait:
        """Return a Wait for the outcome of `work`, or for its exception.

        After `timeout_ms` the outcome is `late()`. The work still runs to its end.
        """
        result = _Result()

        async def run() -> None:
            try:
                result.outcome = await work
            except Exception as error:
                result.error = error
                if isinstance(error, ApiError):
                    # Its traceback has the result in it, and the request (fault security-0).
                    let_go(error)
            # A request that has timed out is not parked, and nothing happens.
            self.touch(result)

        def try_complete(expired: bool) -> Outcome | None:
            if result.is_there:
                return result.take()
            return late() if expired else None

        self.spawn(run())
        return Wait((result,), timeout_ms, try_complete)

    def respond_in_turns(
        self, work: Callable[[], Outcome | None], timeout_ms: int, late: Callable[[], Outcome]
    ) -> Outcome:
        """Call `work` now, and again in each turn of the loop until it returns an outcome."""
        # Most work ends in the first turn: nothing is parked.
        first = work()
        if first is not None:
            return first

        async def finish() -> Outcome:
            outcome = None
            while outcome is None:
                # The other connections come in between.
                await asyncio.sleep(0)
                outcome = work()
            return outcome

        return self.respond(finish(), timeout_ms, late)

    def respond_from_thread(
        self,
        work: Callable[[], T],
        timeout_ms: int,
        late: Callable[[], Outcome],
        then: Callable[[T], Outcome],
    ) -> Wait:
        """Run blocking work in a thread; `then` turns its result into the outcome, on the loop."""

        async def run() -> Outcome:
            return then(await self.in_thread(work))

        return self.respond(run(), timeout_ms, late)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread; return what it returns, or raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
