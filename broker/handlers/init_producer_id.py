"""InitProducerId: an id for an idempotent producer, from this broker's blocks of ids.

Any broker may be asked, and no id is given twice in the cluster. Transactions are not served.
"""

from __future__ import annotations

from broker.cluster.producer_ids import ProducerIds
from broker.network.authorization import CLUSTER, transactional_id
from broker.network.dispatch import Outcome
from broker.network.pending_responses import respond_or_wait
from broker.network.request_context import RequestContext, require_authorized
from protocol.acls import Operation, ResourceType
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    error_response,
)

FIRST_EPOCH = 0
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


def handle(
    producer_ids: ProducerIds,
    timeout_ms: int,
    request: InitProducerIdRequest,
    context: RequestContext,
) -> Outcome:
    """Give an id, or wait up to `timeout_ms` while a block of ids is fetched. Raises ApiError."""
    # With both the producer resumes (KIP-360), which without transactions means another id.
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch belong together")
    if request.transactional_id is not None:
        require_authorized(context, Operation.WRITE, transactional_id(request.transactional_id))
        # The only error after which clients give up at once.
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served"
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


def _may_write_somewhere(context: RequestContext) -> bool:
    """Return whether the sender may write to any topic, which makes it a producer (KIP-679)."""
    sender = context.sender
    return sender is None or sender.may_somewhere(Operation.WRITE, ResourceType.TOPIC)
