"""Measure how late the event loop is, and how much of its time is computing."""

from __future__ import annotations

import asyncio
import time

from broker.metrics.sources import LoopLoad

INTERVAL_S = 0.1
"""Time between two measurements of the delay."""
WINDOW_S = 10.0
"""Time over which the idle share is measured."""


async def measure_load(load: LoopLoad) -> None:
    """Measure for as long as the broker lives. Run it on the loop that is measured."""
    loop = asyncio.get_running_loop()
    began, computed = loop.time(), time.thread_time()

    while True:
        due = loop.time() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        now = loop.time()
        load.delays.observe(max(0.0, now - due))

        # A loop that does not compute waits, for requests or for a disk.
        if now - began >= WINDOW_S:
            share = (time.thread_time() - computed) / (now - began)
            load.idle_share = min(1.0, max(0.0, 1 - share))
            began, computed = now, time.thread_time()
