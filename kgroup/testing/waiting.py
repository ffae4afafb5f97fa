"""Waiting until something holds that another task or process brings about."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

DEADLINE_S = 60.0
PAUSE_S = 0.005


async def until(
    holds: Callable[[], Any],
    description: str,
    deadline_s: float = DEADLINE_S,
    *,
    pause_s: float = PAUSE_S,
    retry_on: tuple[type[Exception], ...] = (),
) -> Any:
    """Call `holds` until it returns something true, and return that.

    `holds` may be a coroutine function. The time is the loop's, virtual or not: `pause_s` is
    between two calls. After an exception in `retry_on` the call is repeated. Raises AssertionError
    at the deadline, with `description` and the last answer.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + deadline_s
    answer: object = None

    while True:
        try:
            answer = holds()
            if inspect.isawaitable(answer):
                answer = await answer
            if answer:
                return answer
        except retry_on as error:
            answer = error

        if loop.time() >= ends_s:
            raise AssertionError(complaint(description, deadline_s, answer))
        await asyncio.sleep(pause_s)


def complaint(description: str, deadline_s: float, answer: object) -> str:
    """Say what did not come true in time."""
    return f"{description}: not within {deadline_s:.0f} s; the last answer was {answer!r}"
