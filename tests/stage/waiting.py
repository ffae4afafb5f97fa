"""Waiting until something holds that another task, thread or process brings about.

A deadline ends a test that would hang. It is no assertion about speed: on a busy machine all of it
may be needed.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from kgroup.testing.waiting import DEADLINE_S, complaint, until

PROCESS_PAUSE_S = 0.05
"""Between two looks at another process."""


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
            raise AssertionError(complaint(description, deadline_s, answer))
        time.sleep(PROCESS_PAUSE_S)
