"""EndTxn: commit or abort a transaction. The response comes when that is decided for good."""

from __future__ import annotations

from functools import partial

from broker.handlers.transaction_responses import respond_to_producer
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.events import EndTransaction
from protocol.messages.end_txn import EndTxnRequest, error_response


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

    return respond_to_producer(pending, timeout_ms, context, partial(error_response, request))
