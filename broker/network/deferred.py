"""Answers that take a coroutine, or work too long for the event loop, to find.

A handler is a plain function. What cannot be had in it begins here, as a task of the broker, and
the handler returns the `Wait` for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from concurrent.futures import Executor
from typing import Any, TypeVar

import attrs

from broker.network.purgatory import NO_ANSWER, Wait

T = TypeVar("T")


@attrs.define(eq=False)
class Deferred:
    """`spawn` runs a task of the broker, `touch` wakes what waits, `executor` has the threads."""

    spawn: Callable[[Coroutine[Any, Any, None]], object]
    touch: Callable[[Hashable], None]
    executor: Executor

    def answer(
        self, work: Coroutine[Any, Any, Any], timeout_ms: int, late: Callable[[], Any]
    ) -> Wait:
        """Wait for what `work` returns, or raises; after `timeout_ms` answer `late()` instead.

        The work goes on to its end, whether or not anybody waits for it still. It may return what
        a handler may: another `Wait`, or None for no answer at all.
        """
        found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def run() -> None:
            try:
                answer = await work
                found.set_result(NO_ANSWER if answer is None else answer)
            except Exception as error:
                found.set_exception(error)
                found.exception()  # seen: the client may be gone
            self.touch(found)

        self.spawn(run())
        return Wait(
            (found,),
            timeout_ms,
            lambda expired: found.result() if found.done() else late() if expired else None,
        )

    def answer_in_turns(
        self, work: Callable[[], Any | None], timeout_ms: int, late: Callable[[], Any]
    ) -> Any:
        """What `work` returns: it is called now, and as long as that is None once more in each
        turn of the loop. NO_ANSWER is for none at all."""
        at_once = work()
        if at_once is not None:
            return None if at_once is NO_ANSWER else at_once

        async def answer() -> Any:
            found = None
            while found is None:
                await asyncio.sleep(0)
                found = work()
            return found

        return self.answer(answer(), timeout_ms, late)

    def answer_from_thread(
        self,
        work: Callable[[], T],
        timeout_ms: int,
        late: Callable[[], Any],
        then: Callable[[T], Any] = lambda found: found,
    ) -> Wait:
        """The same for work that blocks or computes; `then` makes the answer, on the loop."""

        async def answer() -> Any:
            return then(await self.in_thread(work))

        return self.answer(answer(), timeout_ms, late)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What such work returns, or raises, for what began with `answer`."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)
