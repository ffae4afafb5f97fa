"""Events of members: their requests, their timers, and the records that were written for them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from groups.coordinator.membership.history import Rebalanced
from groups.runtime.effects import RequestId
from protocol.errors import ErrorCode
from protocol.frozen import frozen

Protocols = tuple[tuple[str, bytes], ...]
"""(name of an assignor, the member's metadata for it), the one that the member prefers first."""

# ---- requests


@frozen
class Join:
    """JoinGroup. `member_id` is "" for a new member, which gets `new_member_id`.

    - `needs_member_id`: a new member has to join again with its id (version 4 and up, KIP-394).
    - `can_skip_assignment`: a leader may be told to compute no assignment (version 9, KIP-814).
    - `record_max_bytes`: the largest record that the log takes.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    group_instance_id: str | None
    new_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    can_skip_assignment: bool = False
    reason: str | None = None
    connection: int = 0
    record_max_bytes: int = 1_048_588


@frozen
class Sync:
    """SyncGroup. Type and name of the protocol are None if the client does not send them."""

    request_id: RequestId
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()


@frozen
class Heartbeat:
    """Heartbeat of a member."""

    request_id: RequestId
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@frozen
class Leaver:
    """A member to be removed, by its id, or by its instance id alone."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@frozen
class Leave:
    """LeaveGroup, of one member or several."""

    request_id: RequestId
    group_id: str
    leavers: Sequence[Leaver]
    client_id: str = ""
    connection: int = 0


@frozen
class Disconnected:
    """The connection is gone on which a member's JoinGroup or SyncGroup was parked."""

    request_id: RequestId
    group_id: str
    member_id: str


# ---- timers


@attrs.frozen(cache_hash=True)  # each heartbeat looks for its member's timer
class SessionExpired:
    """Nothing was heard of a member for its session timeout.

    Or of a client that was given the member id, and had so long to join with it: an id has one
    timer for all its life.
    """

    group_id: str
    member_id: str


@frozen
class WaitEnded:
    """The group has waited long enough for its members: for what, its state says (`waiting`).

    It waits for one thing at a time, so that it has one such timer, which each wait moves.
    """

    group_id: str


@frozen
class HoldEnded:
    """Members may join again: the reset took too long."""

    group_id: str


# ---- written records


@frozen
class AssignmentStored:
    """The record with a generation's assignments is replicated and replayed; or it failed."""

    group_id: str
    generation_id: int
    error: ErrorCode = ErrorCode.NONE


@frozen
class EmptyGroupStored:
    """The record of a group that has lost its members is replicated and replayed; or it failed.

    `ended` is the rebalance that ended so.
    """

    group_id: str
    ended: Rebalanced | None = None
    error: ErrorCode = ErrorCode.NONE


@frozen
class ReplacementStored:
    """The record with a static member's new id is replicated and replayed; or it failed.

    The other fields are what the member had before, for the case of a failure. The record is that
    of the replacements `beside` this one, too.
    """

    request_id: RequestId
    group_id: str
    member_id: str
    former_id: str
    former_protocols: Protocols
    former_session_timeout_ms: int
    former_rebalance_timeout_ms: int
    former_leader_id: str
    can_skip_assignment: bool = False
    error: ErrorCode = ErrorCode.NONE
    beside: tuple[ReplacementStored, ...] = ()


MemberEvent = (
    Join
    | Sync
    | Heartbeat
    | Leave
    | Disconnected
    | SessionExpired
    | WaitEnded
    | HoldEnded
    | AssignmentStored
    | EmptyGroupStored
    | ReplacementStored
)
"""The events of members that `decide` takes."""
