"""Work that the product gives a thread of its own, as a task of the loop that a test runs in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BesideTheLoop:
    """Starts like a thread, in the time of the loop."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name=name)

    def join(self, timeout: float) -> None:
        """Wait for nothing: it ends with the loop."""
