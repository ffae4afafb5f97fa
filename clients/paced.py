"""Ask about many things at a bounded rate."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def paced(things: Iterable[T], per_second: int) -> AsyncIterator[list[T]]:
    """Yield things in lists, `per_second` of them in a second."""
    rest = iter(things)
    while some := list(islice(rest, per_second)):
        started = time.monotonic()
        yield some
        if len(some) == per_second:
            await asyncio.sleep(max(0.0, started + 1 - time.monotonic()))
