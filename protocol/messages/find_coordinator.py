"""FindCoordinator finds the broker that coordinates a group, or a transactional id.

v1 adds the type of the key, the throttle time and the error message, v4 several keys at once
(KIP-699). v2 adds no field (KIP-219), v3 is v2 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT8, INT16, INT32, STRING, Array, message, nested, wire

GROUP_KEY = 0
TRANSACTION_KEY = 1


@message(api=ApiKey.FIND_COORDINATOR, versions="0-4", sent="0-3", flexible="3+")
class FindCoordinatorRequest:
    """Ask for the coordinator of a key, from v4 on of several: group ids or transactional ids.

    Our clients ask for one at a time.
    """

    key: str = wire(STRING, until=3, default="")
    key_type: int = wire(INT8, since=1, default=GROUP_KEY)
    coordinator_keys: Sequence[str] = wire(Array(STRING), since=4, default=())


@nested
class FindCoordinatorResponseCoordinator:
    """The coordinator of one key, or node -1 and an error."""

    key: str = wire(STRING)
    node_id: int = wire(INT32)
    host: str = wire(STRING)
    port: int = wire(INT32)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable=4)


@message(api=ApiKey.FIND_COORDINATOR, versions="0-4", flexible="3+")
class FindCoordinatorResponse:
    """The coordinator, or node -1 and an error; from v4 on one for each key."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, until=3, default=0)
    error_message: str | None = wire(STRING, since=1, until=3, default=None, nullable=1)
    node_id: int = wire(INT32, until=3, default=-1)
    host: str = wire(STRING, until=3, default="")
    port: int = wire(INT32, until=3, default=-1)
    coordinators: Sequence[FindCoordinatorResponseCoordinator] = wire(
        Array(FindCoordinatorResponseCoordinator), since=4, default=()
    )


def no_coordinator(
    key: str, code: ErrorCode, message: str | None = None
) -> FindCoordinatorResponseCoordinator:
    """Return the error that prevents more than the key of a coordinator."""
    return FindCoordinatorResponseCoordinator(
        key=key,
        node_id=-1,
        host="",
        port=-1,
        error_code=code,
        error_message=code.meaning if message is None else message,
    )


def error_response(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Return the error and no coordinator, from v4 on for each key."""
    return FindCoordinatorResponse(
        error_code=code,
        error_message=code.meaning,
        coordinators=[no_coordinator(key, code) for key in request.coordinator_keys],
    )
