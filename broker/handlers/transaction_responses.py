"""Respond to transactional producers, in errors that their versions know (KIP-588)."""

from __future__ import annotations

from collections.abc import Callable

from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext
from groups.runtime.runtime import Pending
from groups.transactions.events import Done
from protocol.errors import ErrorCode

FIRST_VERSION_OF_FENCED = 2
"""The first version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn with PRODUCER_FENCED."""


def error_for(error: ErrorCode, version: int, first_version_of_fenced: int) -> ErrorCode:
    """Return the error for a client: older ones know PRODUCER_FENCED as another one."""
    if error is ErrorCode.PRODUCER_FENCED and version < first_version_of_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def respond_to_producer(
    pending: Pending,
    timeout_ms: int,
    context: RequestContext,
    render: Callable[[ErrorCode], Outcome],
) -> Outcome:
    """Return what `render` makes of a change's error, or a Wait until the change has ended."""

    def render_done(responses: list[Done]) -> Outcome:
        (done,) = responses
        return render(error_for(done.error, context.api_version, FIRST_VERSION_OF_FENCED))

    late = Done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return respond_when_done([pending], timeout_ms, late, render_done)
