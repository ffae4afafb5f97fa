"""Respond once a coordinator has responded, for handlers of requests that it keeps pending."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from groups.runtime.runtime import Pending

R = TypeVar("R")


def respond_when_done(
    pending: Sequence[Pending], timeout_ms: int, late: R, render: Callable[[list[R]], Outcome]
) -> Outcome:
    """Return `render(responses)`, or a Wait until all responses are there.

    After `timeout_ms` each missing response is `late`. The coordinator touches a pending request
    when it has its response (`CoordinatorRuntime.on_response`).
    """

    def try_complete(expired: bool) -> Outcome | None:
        if not expired and any(request.response is None for request in pending):
            return None
        return render(
            [late if request.response is None else request.response for request in pending]
        )

    response = try_complete(False)
    if response is not None:
        return response

    missing = tuple(request for request in pending if request.response is None)
    return Wait(keys=missing, timeout_ms=timeout_ms, try_complete=try_complete)
