"""AddOffsetsToTxn adds the offsets of a group to a producer's transaction (KIP-98).

v1 adds no field (KIP-219), v2 only PRODUCER_FENCED (KIP-588), v3 is v2 in the flexible encoding.
"""

from __future__ import annotations

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, INT64, STRING, message, wire


@message(api=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-3", flexible="3+")
class AddOffsetsToTxnRequest:
    """Add the partition of `__consumer_offsets` that keeps the group, before TxnOffsetCommit."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    group_id: str = wire(STRING)


@message(api=ApiKey.ADD_OFFSETS_TO_TXN, versions="0-3", flexible="3+")
class AddOffsetsToTxnResponse:
    """The result."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)


def error_response(request: AddOffsetsToTxnRequest, code: ErrorCode) -> AddOffsetsToTxnResponse:
    """Refuse the request."""
    return AddOffsetsToTxnResponse(error_code=code)
