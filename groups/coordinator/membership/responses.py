"""Responses to requests of members, as values that the handlers render."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ErrorCode
from protocol.frozen import frozen

NO_GENERATION = -1


@frozen
class JoinedMember:
    """A member, as the leader gets to know it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@frozen
class Joined:
    """The generation that a member is in; `members` for its leader alone."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    members: Sequence[JoinedMember] = ()
    skip_assignment: bool = False


@frozen
class Synced:
    """The assignment of a member."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@frozen
class Left:
    """The result of a LeaveGroup: `errors` in the order of its members."""

    error: ErrorCode = ErrorCode.NONE
    errors: Sequence[ErrorCode] = ()
