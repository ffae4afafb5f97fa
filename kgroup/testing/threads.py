"""Work as a thread does it, which has no event loop, done where it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def as_in_thread(work: Callable[..., T], *arguments: object) -> T:
    """Do work as if in another thread."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return work(*arguments)
    finally:
        asyncio._set_running_loop(loop)
