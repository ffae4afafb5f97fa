"""A limit of a wait that is not over because the process stood still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from protocol.stalls import PUT_OFF_S, STALL_S
from protocol.timer import Timer


@asynccontextmanager
async def patience(limit_s: float) -> AsyncIterator[None]:
    """Raise TimeoutError when the block takes longer, as `asyncio.timeout` does.

    After a stall of the process what the block waits for may lie in a socket: it has a moment more.
    """
    loop = asyncio.get_running_loop()
    timer: Timer

    def ring() -> None:
        nonlocal timer
        if loop.time() - timer.when() > STALL_S:
            timer = Timer(loop, loop.time() + PUT_OFF_S, ring)
        else:
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        timer = Timer(loop, loop.time() + limit_s, ring)
        try:
            yield
        finally:
            timer.cancel()
