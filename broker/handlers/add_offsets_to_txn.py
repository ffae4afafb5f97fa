"""AddOffsetsToTxn: add the partition that keeps a group's offsets to a transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from broker.cluster.internal_topics import InternalTopic
from broker.handlers.find_coordinator import CreateTopic, create_missing
from broker.handlers.transaction_responses import respond_to_producer
from broker.network.authorization import group
from broker.network.dispatch import Outcome
from broker.network.request_context import RequestContext, require_authorized
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.events import AddPartitions
from offsets.topic import offsets_partition, partition_for
from protocol.acls import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, error_response


def handle(
    coordinator: TransactionCoordinator,
    num_offsets_partitions: Callable[[], int],
    timeout_ms: int,
    request: AddOffsetsToTxnRequest,
    context: RequestContext,
) -> Outcome:
    """Add the partition, one of `num_offsets_partitions()`. Raises ApiError.

    Some producers look for the group's coordinator, which creates the topic, only after this
    request: so `num_offsets_partitions` creates it too, by `begin_topic`.
    """
    require_authorized(context, Operation.READ, group(request.group_id))
    event = AddPartitions(
        coordinator.next_request_id(),
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        frozenset({offsets_partition(partition_for(request.group_id, num_offsets_partitions()))}),
    )
    pending = coordinator.submit(event)

    return respond_to_producer(pending, timeout_ms, context, partial(error_response, request))


def begin_topic(create_topic: CreateTopic, topic: InternalTopic) -> None:
    """Begin to create the topic, and have the producer ask again.

    Raises ApiError COORDINATOR_LOAD_IN_PROGRESS: the coordinator of transactions is the right one.
    """
    with suppress(ApiError):
        create_missing(create_topic, topic)
    raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{topic.name} is being created")
