"""EndTxn: commit or abort a transaction. The response comes when that is decided for good."""

from __future__ import annotations

from broker.handlers.transaction_errors import error_for
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_when_done
from broker.network.request_context import RequestContext
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.events import Done, EndTransaction
from protocol.errors import ErrorCode
from protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

FIRST_VERSION_OF_FENCED = 2


def handle(
    coordinator: TransactionCoordinator,
    timeout_ms: int,
    request: EndTxnRequest,
    context: RequestContext,
) -> Outcome:
    """Decide the transaction; its markers follow. Raises ApiError."""
    event = EndTransaction(
        coordinator.next_request_id(),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
    )
    pending = coordinator.submit(event)

    def render(responses: list[Done]) -> EndTxnResponse:
        (done,) = responses
        code = error_for(done.error, context.api_version, FIRST_VERSION_OF_FENCED)
        return EndTxnResponse(error_code=code)

    return respond_when_done(
        [pending], timeout_ms, Done(ErrorCode.COORDINATOR_NOT_AVAILABLE), render
    )
