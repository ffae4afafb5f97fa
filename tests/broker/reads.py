"""Requests that arrive in one read, served as a connection serves them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from broker.network.dispatch import Dispatcher
from broker.network.request_context import Origin


async def serve_read(
    dispatcher: Dispatcher,
    origin: Origin,
    frames: Sequence[bytes],
    serve: Callable[[bytes], Awaitable[list[Any]]],
) -> tuple[list[list[Any]], int]:
    """Serve runs at once and others by `serve`; return the outcomes, and how many were in runs."""
    outcomes: list[list[Any]] = []
    at_once = 0
    while len(outcomes) < len(frames):
        left = frames[len(outcomes) :]
        responses = dispatcher.dispatch_run(list(map(memoryview, left)), origin)
        at_once += len(responses)
        if responses:
            outcomes += [[response, False] for response in responses]
        else:
            outcomes.append(await serve(left[0]))
    return outcomes, at_once
