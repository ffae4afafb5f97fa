"""ListTransactions: the transactional ids that this broker coordinates (KIP-664, KIP-994)."""

from __future__ import annotations

from broker.network.authorization import transactional_id
from broker.network.request_context import RequestContext, authorize
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.state import STATE_NAMES, Transaction
from protocol.acls import Operation
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseState,
)


def handle(
    coordinator: TransactionCoordinator,
    request: ListTransactionsRequest,
    context: RequestContext,
) -> ListTransactionsResponse:
    """List the ids that pass all filters. Raises ApiError while any of them is loaded."""
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)

    def passes(transaction: Transaction) -> bool:
        duration_ms = request.duration_filter
        return (
            (not states or transaction.state.title in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or context.now_ms - transaction.start_ms > duration_ms)
        )

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in STATE_NAMES],
        transaction_states=[
            ListTransactionsResponseState(
                transactional_id=name,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.title,
            )
            for name, transaction in coordinator.transactions()
            if passes(transaction)
            and authorize(context, Operation.DESCRIBE, transactional_id(name), quietly=True)
        ],
    )
