"""EndTxn commits or aborts a producer's transaction (KIP-98).

v1 adds no field (KIP-219), v2 only PRODUCER_FENCED (KIP-588), v3 is v2 in the flexible encoding.
"""

from __future__ import annotations

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, INT16, INT32, INT64, STRING, message, wire


@message(api=ApiKey.END_TXN, versions="0-3", flexible="3+")
class EndTxnRequest:
    """Commit the transaction, or abort it."""

    transactional_id: str = wire(STRING)
    producer_id: int = wire(INT64)
    producer_epoch: int = wire(INT16)
    committed: bool = wire(BOOL)


@message(api=ApiKey.END_TXN, versions="0-3", flexible="3+")
class EndTxnResponse:
    """The result: without an error it is decided, and its markers are on their way."""

    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)


def error_response(request: EndTxnRequest, code: ErrorCode) -> EndTxnResponse:
    """Refuse the request."""
    return EndTxnResponse(error_code=code)
