"""FindCoordinator finds the broker that coordinates a group.

v1 adds the type of the key, the throttle time and the error message. v2 adds no field (KIP-219).
"""

from __future__ import annotations

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, STRING, message, wire


@message(api=ApiKey.FIND_COORDINATOR, versions="0-2", flexible="3+")
class FindCoordinatorRequest:
    """Ask for the coordinator of a key: type 0 is a group id, 1 a transactional id."""

    key: str = wire(STRING, until=3, default="")
    key_type: int = wire(INT8, since=1, default=0)


@message(api=ApiKey.FIND_COORDINATOR, versions="0-2", flexible="3+")
class FindCoordinatorResponse:
    """The coordinator, or node -1 and an error."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, until=3, default=0)
    error_message: str | None = wire(STRING, since=1, until=3, default=None, nullable=1)
    node_id: int = wire(INT32, until=3, default=0)
    host: str = wire(STRING, until=3, default="")
    port: int = wire(INT32, until=3, default=0)


def error_response(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Return the error and no coordinator."""
    return FindCoordinatorResponse(
        error_code=code, error_message=code.meaning, node_id=-1, host="", port=-1
    )
