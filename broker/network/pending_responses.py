"""Respond when something is done: for handlers that can tell at any time whether it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from groups.runtime.runtime import Pending

R = TypeVar("R")

NO_TIME_LIMIT_MS = 2**31 - 1
"""For requests that a coordinator parks as long as it takes: some 24 days."""


def respond_or_wait(
    try_complete: Callable[[bool], Outcome | None], keys: Iterable[Hashable], timeout_ms: int
) -> Outcome:
    """Return the response of `try_complete(False)`, or a Wait under `keys` until it has one.

    `try_complete(True)` must have one: it is called after `timeout_ms`.
    """
    response = try_complete(False)
    if response is not None:
        return response
    return Wait(keys=tuple(keys), timeout_ms=timeout_ms, try_complete=try_complete)


def respond_when_done(
    pending: Sequence[Pending],
    timeout_ms: int,
    late: R,
    render: Callable[[list[R]], Outcome],
    on_cancel: Callable[[], None] | None = None,
) -> Outcome:
    """Return what `render` makes of a coordinator's responses, or a Wait until it has all of them.

    After `timeout_ms` each missing response is `late`. The coordinator touches a pending request
    when it has its response (`CoordinatorRuntime.on_response`). `on_cancel` is the Wait's.
    """

    # A coordinator that waits for no replica has responded already.
    responses = [request.response for request in pending]
    if None not in responses:
        return render(responses)

    def try_complete(expired: bool) -> Outcome | None:
        # The responses come one by one.
        responses = [request.response for request in pending]
        if None in responses and not expired:
            return None
        return render([late if response is None else response for response in responses])

    # Only a missing response can bring the wait further.
    missing = tuple(request for request in pending if request.response is None)
    return Wait(keys=missing, timeout_ms=timeout_ms, try_complete=try_complete, on_cancel=on_cancel)
