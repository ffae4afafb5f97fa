"""Responses that take a coroutine, or work too long for the event loop, to find.

A handler is a plain function. What it cannot do at once begins here, as a task of the broker, and
the handler returns the `Wait` for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Executor
from typing import Any, TypeVar

import attrs

from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait

T = TypeVar("T")


@attrs.define(eq=False)
class Deferred:
    """`spawn` runs a task of the broker, `touch` wakes what waits, `executor` has the threads."""

    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    executor: Executor

    def respond(
        self, work: Coroutine[Any, Any, Outcome], timeout_ms: int, late: Callable[[], Outcome]
    ) -> Wait:
        """Wait for the outcome of `work`, or what it raises; after `timeout_ms` it is `late()`.

        The work goes on to its end, whether or not anybody still waits for it.
        """
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                outcome.set_result(await work)
            except Exception as error:
                outcome.set_exception(error)
                outcome.exception()  # seen: the client may be gone
            self.touch(outcome)

        def try_complete(expired: bool) -> Outcome | None:
            if outcome.done():
                return outcome.result()
            return late() if expired else None

        self.spawn(run())
        return Wait((outcome,), timeout_ms, try_complete)

    def respond_in_turns(
        self, work: Callable[[], Outcome | None], timeout_ms: int, late: Callable[[], Outcome]
    ) -> Outcome:
        """Call `work` now, and while it returns None once more in each turn of the loop."""
        at_once = work()
        if at_once is not None:
            return at_once

        async def finish() -> Outcome:
            outcome = None
            while outcome is None:
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
        """Do work that blocks or computes in a thread; `then` makes the outcome, on the loop."""

        async def run() -> Outcome:
            return then(await self.in_thread(work))

        return self.respond(run(), timeout_ms, late)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Return what such work returns, or raise what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
