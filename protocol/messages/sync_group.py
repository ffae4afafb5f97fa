"""SyncGroup brings each member of a generation what the leader has assigned to it.

v1 adds the throttle time, v3 static members (KIP-345), v5 type and name of the protocol (KIP-559).
v2 adds no field (KIP-219), v4 is v3 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BYTES, INT16, INT32, STRING, Array, message, nested, wire


@nested
class SyncGroupRequestAssignment:
    """The assignment of a member, made by the leader."""

    member_id: str = wire(STRING)
    assignment: bytes = wire(BYTES)


@message(api=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Ask for the member's assignment. The leader alone sends assignments, those of all members."""

    group_id: str = wire(STRING)
    generation_id: int = wire(INT32)
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=3, default=None, nullable=3)
    protocol_type: str | None = wire(STRING, since=5, default=None, nullable=5)
    protocol_name: str | None = wire(STRING, since=5, default=None, nullable=5)
    assignments: Sequence[SyncGroupRequestAssignment] = wire(Array(SyncGroupRequestAssignment))


@message(api=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The assignment of the member."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, default=0)
    protocol_type: str | None = wire(STRING, since=5, default=None, nullable=5)
    protocol_name: str | None = wire(STRING, since=5, default=None, nullable=5)
    assignment: bytes = wire(BYTES, default=b"")


def error_response(request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """Return the error and no assignment."""
    return SyncGroupResponse(error_code=code)
