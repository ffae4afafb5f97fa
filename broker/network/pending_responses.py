"""Respond when something is done: for handlers that can tell at any time whether it is."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

import attrs

from broker.network.dispatch import Outcome
from broker.network.purgatory import Wait
from groups.runtime.runtime import Pending

P = TypeVar("P")
R = TypeVar("R")

NO_TIME_LIMIT_MS = 2**31 - 1
"""For requests that a coordinator parks as long as it takes: some 24 days."""


@attrs.define(eq=False)
class Remaining(Generic[P]):
    """The parts of a request that it still waits for. A part that was done once stays done.

    A request of N parts is tried when any of them moves. One part that is not done tells as much as
    all of them: to look at all each time would cost N * N looks.
    """

    parts: list[P]
    is_done: Callable[[P], bool]

    def has_any(self) -> bool:
        """Return whether there is a part that is not done."""
        while self.parts:
            # The others are looked at when this one is done (fault scale-S1, was: self.parts).
            looked_at = self.parts[-1:]
            if not all(map(self.is_done, looked_at)):
                return True
            del self.parts[-len(looked_at) :]
        return False

    def list_undone(self) -> list[P]:
        """Return all parts that are not done."""
        return [part for part in self.parts if not self.is_done(part)]


def respond_or_wait(
    try_complete: Callable[[bool], Outcome | None], keys: Iterable[Hashable], timeout_ms: int
) -> Outcome:
    """Return the response of `try_complete(False)`, or a Wait under `keys` until it has one.

    `try_complete(True)` must have one: it is called after `timeout_ms`. With many keys it should
    have the parts that it waits for in a `Remaining`.
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

    # Only a missing response can bring the wait further. The responses come one by one.
    missing = tuple(request for request in pending if request.response is None)
    remaining = Remaining([*missing], _has_response)

    def try_complete(expired: bool) -> Outcome | None:
        if remaining.has_any() and not expired:
            return None
        responses = [request.response for request in pending]
        return render([late if response is None else response for response in responses])

    return Wait(keys=missing, timeout_ms=timeout_ms, try_complete=try_complete, on_cancel=on_cancel)


def _has_response(pending: Pending) -> bool:
    return pending.response is not None
