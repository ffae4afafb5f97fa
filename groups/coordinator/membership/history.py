"""Why a group rebalanced: what a coordinator notes of a rebalance while it goes on.

It keeps no more than what is at hand: ids, times, and the bytes that members and leader sent. They
are read where the event is written (`groups.coordinator.rebalance_events`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType

import attrs

_NOTHING: Mapping[str, int] = MappingProxyType({})


class Cause(Enum):
    """What made a group rebalance, under the name that `__group_events` gives it."""

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


@attrs.frozen
class Trigger:
    """What made a group rebalance, and whose doing it was.

    `reason` is the client's own, if it sent one. `is_inferred`: the cause is concluded from other
    facts than a request that names it.
    """

    cause: Cause
    member_id: str = ""
    client_id: str = ""
    reason: str | None = None
    is_inferred: bool = False


@attrs.frozen
class MemberNote:
    """A member at the beginning, or at the end, of a rebalance."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@attrs.frozen
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
    """What is noted of the rebalance in progress; `trigger` is None while there is none."""

    trigger: Trigger | None = None
    generation_before: int = 0
    started_ms: int = 0
    before: tuple[MemberNote, ...] = ()
    joined_ms: Mapping[str, int] = _NOTHING
    timed_out: Sequence[str] = ()

    def begin(
        self, trigger: Trigger, generation_id: int, members: Iterable[MemberNote], now_ms: int
    ) -> None:
        """Begin with a rebalance."""
        self.trigger = trigger
        self.generation_before = generation_id
        self.started_ms = now_ms
        self.before = tuple(members)
        self.joined_ms = _NOTHING
        self.timed_out = ()

    def note_joined(self, member_id: str, now_ms: int) -> None:
        """Note that a member has joined, if a rebalance is in progress."""
        if self.trigger is None:
            return
        if not isinstance(self.joined_ms, dict):
            self.joined_ms = {}
        self.joined_ms[member_id] = now_ms

    def note_timed_out(self, member_ids: Iterable[str]) -> None:
        """Note members that are removed because they were too late."""
        self.timed_out = (*self.timed_out, *member_ids)

    def end(
        self,
        group_id: str,
        protocol_type: str,
        generation_id: int,
        members: Iterable[MemberNote],
        now_ms: int,
        *,
        is_assigned: bool,
    ) -> Rebalanced | None:
        """End the rebalance; None if none is in progress."""
        if self.trigger is None:
            return None
        ended = Rebalanced(
            group_id,
            protocol_type,
            self.trigger,
            self.generation_before,
            generation_id,
            self.started_ms,
            now_ms,
            self.before,
            tuple(members),
            dict(self.joined_ms),
            tuple(self.timed_out),
            is_assigned,
        )
        self.trigger = None
        self.before = ()
        self.joined_ms = _NOTHING
        self.timed_out = ()
        return ended
