"""ListTransactions: the transactional ids that this broker coordinates (KIP-664, KIP-994)."""

from __future__ import annotations

from itertools import islice
from typing import Any

from broker.network.authorization import transactional_id
from broker.network.deferred import Deferred
from broker.network.dispatch import Outcome
from broker.network.fair_line import owner_of
from broker.network.request_context import RequestContext, authorize
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.state import STATE_NAMES, Transaction
from protocol.acls import Operation
from protocol.encoding import encode_element
from protocol.errors import ErrorCode
from protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsResponseState,
    error_response,
)

IDS_A_TURN = 2000
"""Ids that are looked at in one turn of the loop."""


def handle(
    coordinator: TransactionCoordinator,
    deferred: Deferred,
    timeout_ms: int,
    request: ListTransactionsRequest,
    context: RequestContext,
) -> Outcome:
    """List the ids that pass all filters. Raises ApiError while any of them is loaded."""
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)

    def passes(name: str, transaction: Transaction) -> bool:
        duration_ms = request.duration_filter
        return (
            (not states or transaction.state.title in states)
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (duration_ms < 0 or context.now_ms - transaction.start_ms > duration_ms)
            and authorize(context, Operation.DESCRIBE, transactional_id(name), quietly=True)
        )

    ids = coordinator.transactions()
    listed: list[Any] = []  # encoded ones

    def list_more() -> Outcome | None:
        count = 0
        for name, transaction in islice(ids, IDS_A_TURN):
            count += 1
            if passes(name, transaction):
                state = ListTransactionsResponseState(
                    transactional_id=name,
                    producer_id=transaction.producer_id,
                    transaction_state=transaction.state.title,
                )
                encoded = encode_element(state, ListTransactionsResponse, context.api_version)
                listed.append(encoded)
        if count == IDS_A_TURN:
            return None
        return ListTransactionsResponse(
            unknown_state_filters=[
                name for name in request.state_filters if name not in STATE_NAMES
            ],
            transaction_states=listed,
        )

    def respond_late() -> Outcome:
        return error_response(request, ErrorCode.REQUEST_TIMED_OUT)

    return deferred.respond_in_turns(list_more, timeout_ms, respond_late, owner_of(context))
