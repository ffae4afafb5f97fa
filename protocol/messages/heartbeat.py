"""Heartbeat keeps a member in its group, and lets it know of a rebalance.

v1 adds the throttle time, v3 static members (KIP-345). v2 adds no field (KIP-219), v4 is v3 in the
flexible encoding.
"""

from __future__ import annotations

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, message, wire


@message(api=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Show that a member is alive."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, default=None, nullable=3)


@message(api=ApiKey.HEARTBEAT, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """NONE, or what the member has to do; REBALANCE_IN_PROGRESS: join again."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16)


def error_response(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """Return the error."""
    return HeartbeatResponse(error_code=code)
