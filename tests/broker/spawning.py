"""Tasks as the broker spawns them, kept to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import attrs


@attrs.define(eq=False)
class Spawned:
    """Call it with a coroutine; `ended` waits until all that was spawned has run."""

    tasks: list[asyncio.Task[None]] = attrs.field(factory=list)

    def __call__(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self.tasks.append(task)
        return task

    async def ended(self) -> None:
        """Raises what one of them raised."""
        while self.tasks:
            await self.tasks.pop(0)
