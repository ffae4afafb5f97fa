"""Heartbeats, and what becomes of members, and of clients to be members, that are silent."""

from __future__ import annotations

from groups.coordinator.membership.events import Disconnected, Heartbeat, SessionExpired
from groups.coordinator.membership.group import Group
from groups.coordinator.membership.history import Cause
from groups.coordinator.membership.rebalance import (
    remove_member,
    restart_session,
    trigger_of,
    try_complete,
)
from groups.coordinator.membership.responses import Joined, Synced
from groups.coordinator.membership.state import GroupState
from groups.coordinator.membership.static_members import refusal
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Effect, Reply
from protocol.errors import ErrorCode


def beat(shard: GroupShard, event: Heartbeat, now_ms: int) -> list[Effect]:
    """Restart a member's session; REBALANCE_IN_PROGRESS has it join again."""
    group = shard.live_group(event.group_id)
    if group is None:
        return [Reply(event.request_id, Done(ErrorCode.UNKNOWN_MEMBER_ID))]
    error = refusal(group, event.member_id, event.group_instance_id)
    if not error and event.generation_id != group.generation_id:
        error = ErrorCode.ILLEGAL_GENERATION
    if error:
        return [Reply(event.request_id, Done(error))]

    # While the leader assigns there is nothing to do but to wait (KAFKA-10134).
    if group.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    member = group.members[event.member_id]
    return [restart_session(member), Reply(event.request_id, Done(error))]


def end_parked(shard: GroupShard, event: Disconnected, now_ms: int) -> list[Effect]:
    """Wait for a request no longer whose connection is gone, and count its member's session.

    A client that lives sends it again. One that does not would be a member of the next generation,
    which it may even lead, and the others would wait for its session once more.
    """
    group = shard.live.get(event.group_id)
    member = None if group is None else group.members.get(event.member_id)
    if group is None or member is None:
        return []

    response: Joined | Synced
    if member.parked_join == event.request_id:
        group.take_join(member)
        response = Joined(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
    elif member.parked_sync == event.request_id:
        member.parked_sync = None
        response = Synced(ErrorCode.REBALANCE_IN_PROGRESS)
    else:
        return []
    return [Reply(event.request_id, response), restart_session(member)]


def expire_session(shard: GroupShard, event: SessionExpired, now_ms: int) -> list[Effect]:
    """Remove a member, unless a request of it is parked: then its silence is ours."""
    group = shard.live.get(event.group_id)
    if group is None:
        return []
    if event.member_id in group.handed_out:
        return _forget_id(shard, group, event.member_id, now_ms)

    member = group.members.get(event.member_id)
    if member is None or member.parked_sync is not None:
        return []
    # A new member cannot be heard of, so its first JoinGroup is not parked for ever.
    if member.parked_join is not None and not member.is_new:
        return []

    reason = f"no heartbeat for {member.session_timeout_ms} ms (session.timeout.ms)"
    trigger = trigger_of(Cause.SESSION_EXPIRED, member, reason)
    effects = remove_member(group, member, trigger, shard.config, now_ms)
    shard.release_group(event.group_id)
    return effects


def _forget_id(shard: GroupShard, group: Group, member_id: str, now_ms: int) -> list[Effect]:
    """Wait no longer for a client that was given a member id."""
    group.take_back(member_id)
    effects = try_complete(group, now_ms)
    shard.release_group(group.group_id)
    return effects
