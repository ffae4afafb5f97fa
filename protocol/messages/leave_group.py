"""LeaveGroup removes members from their group.

v1 adds the throttle time, v3 several members at once (KIP-345), v5 a reason for each (KIP-800). v2
adds no field (KIP-219), v4 is v3 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import INT16, INT32, STRING, Array, message, nested, wire


@nested
class LeaveGroupRequestMember:
    """A member that leaves. Its id may be "" if it has an instance id."""

    member_id: str = wire(STRING, default="")
    group_instance_id: str | None = wire(STRING, default=None, nullable=3)
    reason: str | None = wire(STRING, since=5, default=None, nullable=5)


@message(api=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Remove members: one by its id until v2, from v3 on a list."""

    group_id: str = wire(STRING)
    member_id: str = wire(STRING, until=2, default="")
    members: Sequence[LeaveGroupRequestMember] = wire(
        Array(LeaveGroupRequestMember), since=3, default=()
    )


@nested
class LeaveGroupResponseMember:
    """The result for one member."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, nullable=3)
    error_code: int = wire(INT16)


@message(api=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """The error of the whole request; from v3 on each member has one too."""

    throttle_time_ms: int = wire(INT32, since=1, default=0)
    error_code: int = wire(INT16, default=0)
    members: Sequence[LeaveGroupResponseMember] = wire(
        Array(LeaveGroupResponseMember), since=3, default=()
    )


def error_response(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Refuse the whole request."""
    return LeaveGroupResponse(error_code=code)
