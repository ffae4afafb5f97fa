"""Responses to requests of members, as values that the handlers render."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from protocol.errors import ErrorCode

NO_GENERATION = -1


@attrs.frozen
class JoinedMember:
    """A member, as the leader gets to know it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@attrs.frozen
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


@attrs.frozen
class Synced:
    """The assignment of a member."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@attrs.frozen
class Left:
    """The result of a LeaveGroup: `errors` in the order of its members."""

    error: ErrorCode = ErrorCode.NONE
    errors: Sequence[ErrorCode] = ()
