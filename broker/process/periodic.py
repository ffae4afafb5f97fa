"""Periodic work, for as long as the broker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)


async def run_every(
    interval_ms: float, name: str, work: Callable[[], Awaitable[None] | None]
) -> None:
    """Call `work` every `interval_ms`. An exception is logged, and the calls go on."""
    while True:
        # The pause begins when the work has ended: no two calls overlap.
        await asyncio.sleep(interval_ms / 1000)
        try:
            result = work()
            if result is not None:
                await result
        except Exception:
            logger.exception("%s failed", name)
