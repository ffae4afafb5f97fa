"""The tasks of a broker: children of the task that runs it.

A child's failure is logged and ends only that child: one connection, one partition.
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
    """The children in `group`, which is set when the broker's own task begins."""

    group: asyncio.TaskGroup | None = None
    _children: set[asyncio.Task[None]] = attrs.field(factory=set)
    _is_over: bool = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a child. After `end` it is cancelled before it begins."""
        assert self.group is not None
        task = self.group.create_task(_guarded(work))
        self._children.add(task)

        def on_end(task: asyncio.Task[None]) -> None:
            self._children.discard(task)
            work.close()  # a task that was cancelled early has not begun its work

        task.add_done_callback(on_end)

        # Nothing starts in a broker that stops.
        if self._is_over:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel all children."""
        for task in list(self._children):
            task.cancel()

    async def end(self) -> None:
        """Cancel all children, now and from now on; return when none runs."""
        self._is_over = True

        # A child that ends may spawn another.
        while self._children:
            self.cancel()
            await asyncio.wait(self._children)


async def _guarded(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        # In the group it would cancel all other children: a broker's connections.
        logger.exception("a task of the broker failed")
