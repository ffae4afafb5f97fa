"""A close of a client that runs once: all its callers wait for the same end, and hear of it."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import attrs


@attrs.define(eq=False)
class SharedClose:
    """The close of one client, begun by the first of its callers.

    It is a task of its own: a caller that is cancelled does not stop it halfway. What it does
    `in_time` ends at the earliest time that a caller gives.
    """

    name: str
    _task: asyncio.Task[None] | None = None
    _by: float = math.inf
    """The earliest time that a caller has given, on the loop's clock."""
    _limit: asyncio.Timeout | None = None
    """The same for the work that is being done `in_time`."""
    _is_heard: bool = False
    """True if a caller got the result."""

    async def join(
        self, close: Callable[[], Coroutine[Any, Any, None]], timeout_ms: int | None = None
    ) -> None:
        """Close, or wait for the close that has begun, and raise its error.

        `timeout_ms` counts from now. Who comes after the end raises the error only if nobody has
        heard it, since the callers before were cancelled.
        """
        if timeout_ms is not None:
            self._end_by(asyncio.get_running_loop().time() + timeout_ms / 1000)

        # Another close must not take the connections from under this one's flush
        # (fault scale-C1).
        if self._task is not None:
            await self._hear(self._task)
            return

        self._task = asyncio.create_task(close(), name=self.name)
        await self._hear(self._task)

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Do the block until the time of the callers is over; it is left then without an error."""
        try:
            async with asyncio.timeout_at(None if self._by == math.inf else self._by) as limit:
                self._limit = limit
                yield
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._limit = None

    def _end_by(self, by: float) -> None:
        self._by = min(self._by, by)
        if self._limit is not None and not self._limit.expired():
            # The first caller may have given more time, or have been cancelled
            # (fault scale-C1).
            self._limit.reschedule(self._by)

    async def _hear(self, task: asyncio.Task[None]) -> None:
        is_news = not task.done() or not self._is_heard
        await asyncio.wait([task])

        # The first caller may have been cancelled, and the second one too (fault scale-C1).
        if is_news:
            self._is_heard = True
            task.result()
