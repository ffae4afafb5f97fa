"""Why a group rebalanced: what a coordinator notes of a rebalance while it goes on.

It keeps no more than what is at hand: ids, times, and the bytes that members and leader sent. They
are read where the event is written (`groups.coordinator.rebalance_events`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

import attrs

from protocol.frozen import frozen


class Cause(Enum):
    """The cause of a rebalance, under the name that `__group_events` gives it."""

    MEMBER_JOINED = "member_joined"
    MEMBER_LEFT = "member_left"
    MEMBER_KICKED = "member_kicked"
    SESSION_EXPIRED = "session_expired"
    POLL_INTERVAL_EXCEEDED = "poll_interval_exceeded"
    REBALANCE_TIMED_OUT = "rebalance_timed_out"
    SUBSCRIPTION_CHANGED = "subscription_changed"
    PARTITIONS_ADDED = "partitions_added"
    TOPIC_DELETED = "topic_deleted"
    LEADER_REJOINED = "leader_rejoined"
    STATIC_MEMBER_REPLACED = "static_member_replaced"
    COORDINATOR_LOADED = "coordinator_loaded"


@frozen
class Trigger:
    """The cause of a rebalance, and the member who gave it.

    `reason` is the client's own, if it sent one. `is_inferred`: the cause is concluded from other
    facts than a request that names it.
    """

    cause: Cause
    member_id: str = ""
    client_id: str = ""
    reason: str | None = None
    is_inferred: bool = False


@frozen
class MemberNote:
    """A member at the beginning, or at the end, of a rebalance."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@frozen
class Rebalanced:
    """A rebalance that ended.

    - `joined_ms`: member id -> when it joined; wall clock, as all times.
    - `timed_out`: members that were removed because they did not join, or sync, in time.
    - `is_assigned`: the leader's assignments were written.
    """

    group_id: str
    protocol_type: str
    trigger: Trigger
    generation_before: int
    generation_after: int
    started_ms: int
    ended_ms: int
    before: tuple[MemberNote, ...]
    after: tuple[MemberNote, ...]
    joined_ms: Mapping[str, int]
    timed_out: tuple[str, ...]
    is_assigned: bool


@attrs.define(eq=False)
class History:
    """The notes on the rebalance in progress.

    `before` has the members of the generation that ends, as they were. See `Rebalanced` for the
    rest.
    """

    trigger: Trigger
    generation_before: int
    started_ms: int
    before: tuple[MemberNote, ...]
    joined_ms: dict[str, int] = attrs.field(factory=dict)
    timed_out: tuple[str, ...] = ()

    def note_timed_out(self, member_ids: Iterable[str]) -> None:
        """Note members that are removed because they were too late."""
        self.timed_out = (*self.timed_out, *member_ids)
