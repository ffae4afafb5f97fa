"""Free a request that names very many things, some of them a turn of the event loop.

To free 250,000 of them at once takes 10 to 17 ms.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

FREED_A_TURN = 5000
"""Things that are freed in one turn, or a few more."""


async def let_go_of(request: Any, path: Sequence[str]) -> None:
    """Empty the arrays of a request that nobody needs any more.

    `path` has the names of the fields, from the outermost array to the innermost.
    """
    freed = 0
    for count in _free(request, path):
        freed += count
        if freed >= FREED_A_TURN:
            freed = 0
            await asyncio.sleep(0)


def _free(message: Any, path: Sequence[str]) -> Iterator[int]:
    """Free some things of a message, and yield how many, until there are none."""
    field, *inner = path
    array = list(getattr(message, field) or ())
    setattr(message, field, ())
    while array:
        if inner:
            yield from _free(array[-1], inner)
        count = 1 if inner else FREED_A_TURN
        del array[-count:]
        yield count
