"""Waiting until something holds that another task, thread or process brings about.

A deadline ends a test that would hang. It is no assertion about speed: on a busy machine all of it
may be needed.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

DEADLINE_S = 60.0
PAUSE_S = 0.005
PROCESS_PAUSE_S = 0.05
"""Between two looks at another process."""


async def until(
    holds: Callable[[], Any],
    description: str,
    deadline_s: float = DEADLINE_S,
    *,
    pause_s: float = PAUSE_S,
    retry_on: tuple[type[Exception], ...] = (),
) -> Any:
    """Call `holds` until it returns something true, and return that.

    `holds` may be a coroutine function. The time is the loop's, virtual or not. After an exception
    in `retry_on` the call is repeated. Raises AssertionError at the deadline.
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
            raise AssertionError(_complaint(description, deadline_s, answer))
        await asyncio.sleep(pause_s)


async def until_equal(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    """Await `ask` until it returns what is wanted. Raises AssertionError at the deadline."""
    answers: list[object] = []

    async def is_equal() -> bool:
        answers[:] = [await ask()]
        return answers == [wanted]

    try:
        await until(is_equal, f"equal to {wanted!r}")
    except AssertionError as late:
        raise AssertionError(f"{late}: {answers}") from None


def block_until(
    holds: Callable[[], object], description: str, deadline_s: float = DEADLINE_S
) -> None:
    """Call `holds` until it returns something true, blocking this thread between two calls.

    Raises AssertionError at the deadline.
    """
    ends_s = time.monotonic() + deadline_s

    while not (answer := holds()):
        if time.monotonic() >= ends_s:
            raise AssertionError(_complaint(description, deadline_s, answer))
        time.sleep(PROCESS_PAUSE_S)


def _complaint(description: str, deadline_s: float, answer: object) -> str:
    return f"{description}: not within {deadline_s:.0f} s; the last answer was {answer!r}"
