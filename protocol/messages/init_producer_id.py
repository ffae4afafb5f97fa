"""InitProducerId gives an id to a producer that numbers its batches (KIP-98).

v1 adds no field (KIP-219), v2 is v1 in the flexible encoding. v3 adds the id and the epoch that the
producer had (KIP-360), v4 only PRODUCER_FENCED.
"""

from __future__ import annotations

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, message, wire


@message(api=ApiKey.INIT_PRODUCER_ID, versions="0-4", flexible="2+")
class InitProducerIdRequest:
    """Ask for a producer id; without a transactional id each request gets a new one."""

    transactional_id: str | None = wire(STRING, default=None, nullable=0)
    transaction_timeout_ms: int = wire(INT32, default=0)
    # What the producer has had so far; -1: nothing.
    producer_id: int = wire(INT64, since=3, default=-1)
    producer_epoch: int = wire(INT16, since=3, default=-1)


@message(api=ApiKey.INIT_PRODUCER_ID, versions="0-4", flexible="2+")
class InitProducerIdResponse:
    """The producer id and its first epoch, or -1 and an error."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    producer_id: int = wire(INT64, default=-1)
    producer_epoch: int = wire(INT16, default=-1)


def error_response(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    """Return the error and no producer id."""
    return InitProducerIdResponse(error_code=code)
