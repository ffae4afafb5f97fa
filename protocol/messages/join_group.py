"""JoinGroup makes a client a member of a group, or keeps it one in the next generation.

v1 adds the rebalance timeout (KIP-62), v2 the throttle time, v5 static members (KIP-345), v7 the
protocol type (KIP-559), v8 the reason (KIP-800), v9 `skip_assignment` (KIP-814). From v4 on a new
member gets MEMBER_ID_REQUIRED and joins again with the id that comes with it (KIP-394). v3 adds no
field (KIP-219), v6 is v5 in the flexible encoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.api_key import ApiKey
from protocol.errors import ErrorCode
from protocol.wire import BOOL, BYTES, INT16, INT32, STRING, Array, message, nested, wire

UNKNOWN_GENERATION = -1


@nested
class JoinGroupRequestProtocol:
    """An assignor that the member supports, with what the assignor needs to know of the member."""

    name: str = wire(STRING)
    metadata: bytes = wire(BYTES)


@message(api=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Join a group. A new member has the id ""; protocols come in order of preference."""

    group_id: str = wire(STRING)
    session_timeout_ms: int = wire(INT32)
    rebalance_timeout_ms: int = wire(INT32, since=1, default=-1)  # v0: the session timeout
    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, default=None, nullable=5)
    protocol_type: str = wire(STRING)
    protocols: Sequence[JoinGroupRequestProtocol] = wire(Array(JoinGroupRequestProtocol))
    reason: str | None = wire(STRING, since=8, default=None, nullable=8)


@nested
class JoinGroupResponseMember:
    """A member of JoinGroupResponse, with its metadata for the chosen assignor."""

    member_id: str = wire(STRING)
    group_instance_id: str | None = wire(STRING, since=5, default=None, nullable=5)
    metadata: bytes = wire(BYTES)


@message(api=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation that the member is in. The leader alone gets the list of members."""

    throttle_time_ms: int = wire(INT32, since=2, default=0)
    error_code: int = wire(INT16, default=0)
    generation_id: int = wire(INT32, default=UNKNOWN_GENERATION)
    protocol_type: str | None = wire(STRING, since=7, default=None, nullable=7)
    protocol_name: str | None = wire(STRING, default="", nullable=7)
    leader: str = wire(STRING, default="")
    skip_assignment: bool = wire(BOOL, since=9, default=False)
    member_id: str = wire(STRING, default="")
    members: Sequence[JoinGroupResponseMember] = wire(Array(JoinGroupResponseMember), default=())


def error_response(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    """Return the error and no generation."""
    return JoinGroupResponse(error_code=code)
