"""InitProducerId: an id for an idempotent producer, from this broker's blocks of ids.

Any broker may be asked, and each answer is an id nobody had before. Transactions are not served.
"""

from __future__ import annotations

from broker.cluster.producer_ids import ProducerIds
from broker.network.purgatory import Wait
from broker.network.request_context import RequestContext
from protocol.errors import ApiError, ErrorCode
from protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
    error_response,
)

FIRST_EPOCH = 0


def handle(
    ids: ProducerIds, timeout_ms: int, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Wait:
    """Give an id, or wait up to `timeout_ms` while a block of them is fetched.

    A transactional producer is told the one thing that makes clients give up at once. Raises
    ApiError.
    """
    if request.transactional_id is not None:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served"
        )

    def try_complete(expired: bool) -> InitProducerIdResponse | None:
        producer_id = ids.take()
        if producer_id is not None:
            return InitProducerIdResponse(producer_id=producer_id, producer_epoch=FIRST_EPOCH)
        if expired:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # which every client tries again
            return error_response(request, code)
        return None

    return try_complete(False) or Wait((ids,), timeout_ms, try_complete)
