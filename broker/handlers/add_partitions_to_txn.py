"""AddPartitionsToTxn: add partitions to a transaction, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Container
from functools import partial

from broker.handlers.transaction_responses import respond_to_producer
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, refused_topics
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.events import AddPartitions
from protocol.acls import Operation
from protocol.errors import ErrorCode
from protocol.internal_topics import INTERNAL_TOPICS
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    error_response,
)
from protocol.topic_partition import TopicPartition


def handle(
    coordinator: TransactionCoordinator,
    known_partitions: Callable[[str], Container[int]],
    timeout_ms: int,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Outcome:
    """Add the partitions. `known_partitions(topic)` are those of the metadata cache.

    If any of them cannot be added none is. Raises ApiError.
    """
    names = [topic.name for topic in request.topics]
    refused_names = refused_topics(context, Operation.WRITE, names)
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        is_refused = topic.name in refused_names or topic.name in INTERNAL_TOPICS
        existing = known_partitions(topic.name)
        for partition in topic.partitions:
            if is_refused:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif partition not in existing:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                code = ErrorCode.NONE
            errors[TopicPartition(topic.name, partition)] = code
    if any(errors.values()):
        return _refuse(request, errors)

    event = AddPartitions(
        coordinator.next_request_id(),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset(errors),
    )
    pending = coordinator.submit(event)

    return respond_to_producer(pending, timeout_ms, context, partial(error_response, request))


def _refuse(
    request: AddPartitionsToTxnRequest, errors: dict[TopicPartition, ErrorCode]
) -> AddPartitionsToTxnResponse:
    """Return the errors, and for partitions without one that the others have."""
    return AddPartitionsToTxnResponse(
        results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=partition,
                        error_code=errors[TopicPartition(topic.name, partition)]
                        or ErrorCode.OPERATION_NOT_ATTEMPTED,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
