"""Periodic work, for as long as the broker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from protocol.stalls import PUT_OFF_S, STALL_S

logger = logging.getLogger(__name__)


async def run_every(
    interval_ms: float, name: str, work: Callable[[], Awaitable[None] | None]
) -> None:
    """Call `work` every `interval_ms`. An exception is logged, and the calls go on."""
    while True:
        # The pause begins when the work has ended: no two calls overlap.
        await _pause(interval_ms / 1000)
        try:
            result = work()
            if result is not None:
                await result
        except Exception:
            logger.exception("%s failed", name)


async def _pause(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    due_s = loop.time() + seconds
    await asyncio.sleep(seconds)
    # Followers, clients and producers all seem silent to a process that stood still: what they have
    # sent meanwhile is read first (fault groups-5).
    if loop.time() - due_s > STALL_S:
        await asyncio.sleep(PUT_OFF_S)
