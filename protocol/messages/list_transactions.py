"""ListTransactions lists the transactional ids that a broker coordinates (KIP-664).

v1 adds a filter by how long a transaction is open (KIP-994).
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@message(api=ApiKey.LIST_TRANSACTIONS, versions="0-1", flexible="0+")
class ListTransactionsRequest:
    """Ask a broker for the transactional ids that pass all filters; an empty one passes all."""

    state_filters: Sequence[str] = wire(Array(STRING), default=())
    producer_id_filters: Sequence[int] = wire(Array(INT64), default=())
    duration_filter: int = wire(INT64, since=1, default=-1)  # ms; -1: any


@nested
class ListTransactionsResponseState:
    """A transactional id of ListTransactionsResponse."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    transaction_state: str = wire(STRING)


@message(api=ApiKey.LIST_TRANSACTIONS, versions="0-1", flexible="0+")
class ListTransactionsResponse:
    """The transactional ids, and the names in the state filter that name no state."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    unknown_state_filters: Sequence[str] = wire(Array(STRING), default=())
    transaction_states: Sequence[ListTransactionsResponseState] = wire(
        Array(ListTransactionsResponseState), default=()
    )


def error_response(request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """Refuse the whole request."""
    return ListTransactionsResponse(error_code=code)
