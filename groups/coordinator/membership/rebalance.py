"""A rebalance: members join again, a generation begins, its leader assigns.

    prepare -> (all join, or the time is over) -> complete -> (the leader's assignments) -> stable

Members hear of it by their next heartbeat or commit. A group that was empty first waits for more
members, so that ten consumers that start together do not rebalance ten times (KIP-134).
"""

from __future__ import annotations

from groups.coordinator.config import GroupConfig
from groups.coordinator.membership.events import (
    EmptyGroupStored,
    WaitEnded,
)
from groups.coordinator.membership.group import Group, InitialDelay, Member
from groups.coordinator.membership.history import Cause, History, MemberNote, Rebalanced, Trigger
from groups.coordinator.membership.responses import Joined, JoinedMember, Synced
from groups.coordinator.membership.state import GroupState
from groups.runtime.effects import Append, Effect, Publish, Reply, SetTimer
from offsets.records import GroupKey
from protocol.errors import ErrorCode

# ---- begin


def prepare(
    group: Group,
    trigger: Trigger,
    config: GroupConfig,
    now_ms: int,
    before: tuple[MemberNote, ...] | None = None,
) -> list[Effect]:
    """Have all members join again. The caller parks what it has, and then calls `try_complete`.

    `before` has the members of the generation that ends, if some of them have gone already.
    """
    effects: list[Effect] = []

    # A generation that was not assigned yet ends here, and so does its rebalance.
    if group.state is GroupState.COMPLETING_REBALANCE:
        effects += respond_to_syncs(group, Synced(ErrorCode.REBALANCE_IN_PROGRESS))
        effects += end_history(group, now_ms, is_assigned=False)
    group.unsynced = frozenset()
    before = notes(group) if before is None else before
    group.history = History(trigger, group.generation_id, now_ms, before)

    was_empty = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, now_ms)
    if not was_empty:
        return [*effects, wait(group, group.rebalance_timeout_ms)]

    # The first generation waits for more members.
    delay_ms = config.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    group.initial_delay = InitialDelay(delay_ms, remaining_ms)
    return [*effects, wait(group, delay_ms)]


def wait(group: Group, duration_ms: int) -> SetTimer:
    """Have the group wait so long, instead of what it waited for before."""
    return SetTimer(WaitEnded(group.group_id), duration_ms)


# ---- complete


def try_complete(group: Group, now_ms: int) -> list[Effect]:
    """Complete the join if everyone has joined."""
    is_waiting = group.state is GroupState.PREPARING_REBALANCE and not group.initial_delay
    if is_waiting and group.is_join_complete:
        return complete(group, now_ms)
    return []


def complete(group: Group, now_ms: int) -> list[Effect]:
    """Begin the next generation with the members that have joined."""
    group.initial_delay = None
    _remove_late_members(group)

    # Static members stay although they are away. One that has joined must lead.
    if group.members and not _choose_leader(group):
        return [wait(group, group.rebalance_timeout_ms)]

    group.generation_id = group.next_generation
    if not group.members:
        return _become_empty(group, now_ms)
    return _begin_generation(group, now_ms)


def _remove_late_members(group: Group) -> None:
    late = [
        member
        for member in group.members.values()
        if member.parked_join is None and member.group_instance_id is None
    ]
    assert group.history is not None, "members are late for a rebalance"
    group.history.note_timed_out(member.member_id for member in late)
    for member in late:
        group.remove(member)


def _choose_leader(group: Group) -> bool:
    """Have a member lead that has joined; return whether there is one."""
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.parked_join is not None:
        return True
    for member in group.members.values():
        if member.parked_join is not None:
            group.leader_id = member.member_id
            return True
    return False


def _become_empty(group: Group, now_ms: int) -> list[Effect]:
    group.protocol_name = None
    group.move_to(GroupState.EMPTY, now_ms)

    # The record says since when nobody consumes: offsets expire from then on.
    key = GroupKey(group.group_id)
    stored = EmptyGroupStored(group.group_id, _take_history(group, now_ms, is_assigned=True))
    return [
        # Nobody is waited for. A timer that has days to go would outlive the group.
        wait(group, 0),
        Append([(key, group.record({}))], then=stored),
    ]


def _begin_generation(group: Group, now_ms: int) -> list[Effect]:
    group.protocol_name = group.choose_protocol()
    group.move_to(GroupState.COMPLETING_REBALANCE, now_ms)
    group.unsynced = set(group.members)

    # Everyone has a session from now on, and so long to sync as it had to join.
    effects: list[Effect] = []
    for member in group.members.values():
        effects += respond_to_join(group, member)
        effects.append(restart_session(member))
        member.is_new = False
    effects.append(wait(group, group.rebalance_timeout_ms))
    return effects


# ---- members that go


def remove_member(
    group: Group, member: Member, trigger: Trigger, config: GroupConfig, now_ms: int
) -> list[Effect]:
    """Remove a member, and let the others share what it had."""
    has_generation = group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE)
    before = notes(group) if has_generation else ()

    effects = respond_to_removed(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
    group.remove(member)
    if has_generation:
        effects += prepare(group, trigger, config, now_ms, before)
    return effects + try_complete(group, now_ms)


def respond_to_removed(group: Group, member: Member, error: ErrorCode) -> list[Effect]:
    """End the parked requests of a member that is none any longer, or not here."""
    effects: list[Effect] = []
    join_id = group.take_join(member)
    if join_id is not None:
        # It keeps its id, unless it has lost its place.
        member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else member.member_id
        effects.append(Reply(join_id, Joined(error, member_id)))
    if member.parked_sync is not None:
        effects.append(Reply(member.parked_sync, Synced(error)))
        member.parked_sync = None
    return effects


# ---- responses and sessions


def respond_to_join(group: Group, member: Member) -> list[Effect]:
    """Respond to a member's parked JoinGroup, if it has one, with the present generation."""
    request_id = group.take_join(member)
    return [] if request_id is None else [Reply(request_id, joined(group, member))]


def joined(group: Group, member: Member) -> Joined:
    """Return the present generation as `member` gets to know it."""
    leader_id = group.leader_id or ""
    return Joined(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        leader_id,
        joined_members(group) if member.member_id == leader_id else (),
    )


def joined_members(group: Group) -> tuple[JoinedMember, ...]:
    """Return all members as their leader gets to know them."""
    return tuple(
        JoinedMember(
            member.member_id, member.group_instance_id, member.metadata_for(group.protocol_name)
        )
        for member in group.members.values()
    )


def respond_to_syncs(group: Group, refusal: Synced | None = None) -> list[Effect]:
    """Respond to all parked SyncGroup requests, with each member's assignment or the refusal."""
    effects: list[Effect] = []
    for member in group.members.values():
        if member.parked_sync is not None:
            response = refusal or synced(group, member)
            effects.append(Reply(member.parked_sync, response))
            # Its session was not counted while the request was parked.
            effects.append(restart_session(member))
            member.parked_sync = None
    return effects


def synced(group: Group, member: Member) -> Synced:
    """Return a member's assignment."""
    return Synced(ErrorCode.NONE, group.protocol_type, group.protocol_name, member.assignment)


def restart_session(member: Member) -> SetTimer:
    """Count the session timeout of a member from now on."""
    return SetTimer(member.session, member.session_timeout_ms)


# ---- history


def notes(group: Group) -> tuple[MemberNote, ...]:
    """Note the members of the generation as they are now; a newcomer is not one of them yet."""
    return tuple(
        MemberNote(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            member.metadata_for(group.protocol_name),
            member.assignment,
        )
        for member in group.members.values()
        if not member.is_new
    )


def end_history(group: Group, now_ms: int, *, is_assigned: bool) -> list[Effect]:
    """Publish the rebalance that ends."""
    rebalanced = _take_history(group, now_ms, is_assigned=is_assigned)
    return [] if rebalanced is None else [Publish(rebalanced)]


def _take_history(group: Group, now_ms: int, *, is_assigned: bool) -> Rebalanced | None:
    """Return the rebalance that ends; None if its end was noted already."""
    history = group.history
    if history is None:
        return None
    group.history = None
    return Rebalanced(
        group.group_id,
        group.protocol_type,
        history.trigger,
        history.generation_before,
        group.generation_id,
        history.started_ms,
        now_ms,
        history.before,
        notes(group),
        history.joined_ms,
        history.timed_out,
        is_assigned,
    )


def trigger_of(cause: Cause, member: Member, reason: str | None = None) -> Trigger:
    """Return a trigger that is a member's doing."""
    return Trigger(cause, member.member_id, member.client_id, reason)
