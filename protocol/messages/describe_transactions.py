"""DescribeTransactions describes the transactions of some transactional ids (KIP-664).

There is one version, v0.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, Array, message, nested, wire


@message(api=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Ask their coordinator for these transactional ids."""

    transactional_ids: Sequence[str] = wire(Array(STRING))


@nested
class DescribeTransactionsResponseTopic:
    """A topic with partitions in a transaction."""

    topic: str = wire(STRING)
    partitions: Sequence[int] = wire(Array(INT32))


@nested
class DescribeTransactionsResponseState:
    """A transactional id of DescribeTransactionsResponse.

    `transaction_start_time_ms` is -1 for one that had no transaction.
    """

    error_code: int = wire(INT16, default=0)
    transactional_id: str = wire(STRING)
    transaction_state: str = wire(STRING, default="")
    transaction_timeout_ms: int = wire(INT32, default=0)
    transaction_start_time_ms: int = wire(INT64, default=0)
    producer_id: int = wire(INT64, default=0)
    producer_epoch: int = wire(INT16, default=0)
    topics: Sequence[DescribeTransactionsResponseTopic] = wire(
        Array(DescribeTransactionsResponseTopic), default=()
    )


@message(api=ApiKey.DESCRIBE_TRANSACTIONS, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """The state of each transactional id."""

    throttle_time_ms: int = wire(INT32, default=0)
    transaction_states: Sequence[DescribeTransactionsResponseState] = wire(
        Array(DescribeTransactionsResponseState)
    )


def error_response(
    request: DescribeTransactionsRequest, code: ErrorCode
) -> DescribeTransactionsResponse:
    """Return the same error for every transactional id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponseState(transactional_id=name, error_code=code)
            for name in request.transactional_ids
        ]
    )
