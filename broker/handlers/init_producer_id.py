"""InitProducerId: an id for an idempotent producer, from this broker's blocks of ids.

Any broker may be asked, and no id is given twice in the cluster. A producer with a transactional id
asks the coordinator of that.
"""

from __future__ import annotations

from broker.cluster.producer_ids import ProducerIds
from broker.handlers.transaction_responses import error_for
from broker.network.authorization import CLUSTER, transactional_id
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_or_wait, respond_when_done
from broker.network.request_context import RequestContext, require_authorized
from groups.transactions.coordinator import TransactionCoordinator
from groups.transactions.events import InitProducer, ProducerGiven
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    error_response,
)

FIRST_EPOCH = 0
FIRST_VERSION_OF_FENCED = 4
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle(
    producer_ids: ProducerIds,
    coordinator: TransactionCoordinator,
    timeout_ms: int,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Outcome:
    """Give an id, or wait up to `timeout_ms` while a block of ids is fetched. Raises ApiError."""
    # With both a producer asks for its next epoch (KIP-360); without transactions for another id.
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch belong together")
    if request.transactional_id is not None:
        require_authorized(context, Operation.WRITE, transactional_id(request.transactional_id))
        return _init_transactional(
            coordinator, request.transactional_id, timeout_ms, request, context
        )
    if not _may_write_somewhere(context):
        require_authorized(context, Operation.IDEMPOTENT_WRITE, CLUSTER)

    # A half-used block has the next one fetched. Requests wait only if the ids run out before.
    def try_complete(expired: bool) -> InitProducerIdResponse | None:
        producer_id = producer_ids.take()
        if producer_id is not None:
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
        if expired:
            # Every client retries after this error.
            return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    return respond_or_wait(try_complete, [producer_ids], timeout_ms)


def _init_transactional(
    coordinator: TransactionCoordinator,
    name: str,
    timeout_ms: int,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Outcome:
    event = InitProducer(
        coordinator.next_request_id(),
        name,
        request.transaction_timeout_ms,
        request.producer_id,
        request.producer_epoch,
    )
    pending = coordinator.init_producer(event)

    def render(responses: list[ProducerGiven]) -> InitProducerIdResponse:
        (given,) = responses
        return InitProducerIdResponse(
            error_code=error_for(given.error, context.api_version, FIRST_VERSION_OF_FENCED),
            producer_id=given.producer_id,
            producer_epoch=given.epoch,
        )

    late = ProducerGiven(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return respond_when_done([pending], timeout_ms, late, render)


def _may_write_somewhere(context: RequestContext) -> bool:
    """Return whether the sender may write to any topic, which makes it a producer (KIP-679)."""
    sender = context.sender
    return sender is None or sender.may_somewhere(Operation.WRITE, ResourceType.TOPIC)
