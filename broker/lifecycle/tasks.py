"""The tasks of a broker, children of the one that runs it.

A child's failure is logged and ends that child alone: one connection, one partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import attrs

logger = logging.getLogger(__name__)


@attrs.define(eq=False)
class Tasks:
    """Those of `group`, which is set when the broker's own task begins."""

    group: asyncio.TaskGroup | None = None
    _children: set[asyncio.Task[None]] = attrs.field(factory=set)
    _is_over: bool = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin another one; after `end` it is cancelled before it begins."""
        assert self.group is not None
        task = self.group.create_task(_guarded(work))
        self._children.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._children.discard(task)
            work.close()  # which has not begun, if the task was cancelled before it did

        task.add_done_callback(ended)
        if self._is_over:
            task.cancel()
        return task

    def cancel(self) -> None:
        """End all there are."""
        for task in list(self._children):
            task.cancel()

    async def end(self) -> None:
        """Cancel all there are, and all to come, and return when none runs any more."""
        self._is_over = True
        while self._children:
            self.cancel()
            await asyncio.wait(self._children)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        logger.exception("a task of the broker failed")
