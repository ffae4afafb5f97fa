"""DescribeTransactions: the transactions of ids that are coordinated here (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection

from broker.network.authorization import CLUSTER, transactional_id
from broker.network.deferred import Deferred
from broker.network.dispatch import Close, Outcome
from broker.network.request_context import RequestContext, authorize, refused_topics
from groups.transactions.coordinator import TransactionCoordinator
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseState,
    DescribeTransactionsResponseTopic,
    error_response,
)
from protocol.topic_partition import by_topic

A_TURN = 1000
"""Ids, and partitions of their transactions, that are described in one turn of the loop."""
MOST = 250_000
"""The same in one response, at most: a request may name one id very often."""


def handle(
    coordinator: TransactionCoordinator,
    deferred: Deferred,
    timeout_ms: int,
    request: DescribeTransactionsRequest,
    context: RequestContext,
) -> Outcome:
    """Describe each id, or say why not. Brokers, which verify transactions by it, see all."""
    is_broker = authorize(context, Operation.CLUSTER_ACTION, CLUSTER, quietly=True)
    names = iter(request.transactional_ids)
    states: list[DescribeTransactionsResponseState] = []

    described = 0

    def describe_more() -> Outcome | None:
        nonlocal described
        # Those that have many partitions are few a turn (fault strangers-8).
        turn_ends = described + A_TURN
        for name in names:
            state = _describe(coordinator, name, context, is_broker)
            states.append(state)
            described += 1 + sum(len(topic.partitions) for topic in state.topics)
            # They are encoded at once, and are memory till then (fault strangers-8).
            if described > MOST:
                return Close(f"more than {MOST} transactions and partitions to describe")
            if described >= turn_ends:
                return None
        return DescribeTransactionsResponse(transaction_states=states)

    return deferred.respond_in_turns(
        describe_more, timeout_ms, lambda: error_response(request, ErrorCode.REQUEST_TIMED_OUT)
    )


def _describe(
    coordinator: TransactionCoordinator, name: str, context: RequestContext, is_broker: bool
) -> DescribeTransactionsResponseState:
    if not is_broker and not authorize(context, Operation.DESCRIBE, transactional_id(name)):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return DescribeTransactionsResponseState(transactional_id=name, error_code=code)
    try:
        transaction = coordinator.describe(name)
    except ApiError as error:
        return DescribeTransactionsResponseState(transactional_id=name, error_code=error.code)

    # Topics that the sender may not know of are left out.
    hidden: Collection[str] = ()
    if not is_broker:
        names = {topic for topic, _ in transaction.partitions}
        hidden = refused_topics(context, Operation.DESCRIBE, names, quietly=True)
    return DescribeTransactionsResponseState(
        transactional_id=name,
        transaction_state=transaction.state.title,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[
            DescribeTransactionsResponseTopic(
                topic=topic, partitions=[number for _, number in same_topic]
            )
            for topic, same_topic in by_topic(transaction.partitions)
            if topic not in hidden
        ],
    )
