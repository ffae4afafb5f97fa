"""A disk that is slow: its work waits until the test has it done."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future
from typing import Any

from kgroup.testing.threads import as_in_thread


class Disk(Executor):
    """A thread pool whose work is run in this thread when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[Any], Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, lambda: fn(*args, **kwargs)))
        return future

    async def run_next(self, failure: OSError | None = None) -> None:
        """Do the oldest piece of work, or fail it; return when the loop has its result."""
        future, work = self.waiting.pop(0)
        if failure is None:
            as_in_thread(work)
            future.set_result(None)
        else:
            future.set_exception(failure)
        await turns()


async def turns() -> None:
    """Run all tasks as far as they can go."""
    for _ in range(5):
        await asyncio.sleep(0)
