"""LeaveGroup: members go, of themselves or removed by an administrator.

`kgroup reset` of a group with members removes all of them, and then writes its offsets. In between
the group is *held*: consumers join again at once, and would go on from the old offsets.
"""

from __future__ import annotations

from groups.coordinator.membership.events import HoldEnded, Leave, Leaver
from groups.coordinator.membership.group import Group, Member
from groups.coordinator.membership.history import Cause, Trigger
from groups.coordinator.membership.rebalance import complete, remove_member, try_complete
from groups.coordinator.membership.responses import Left
from groups.coordinator.membership.state import GroupState
from groups.coordinator.membership.static_members import refusal
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Effect, Reply, SetTimer
from protocol.errors import ErrorCode

RESET_REASON = "kgroup reset "
"""The beginning of the reason with which `kgroup reset` removes all members."""

POLL_TIMEOUT_REASON = "consumer poll timeout has expired."
"""The beginning of the reason of a consumer whose application did not ask for messages in time
(KIP-800). Java's says no more, ours adds how long it took."""


def leave(shard: GroupShard, event: Leave, now_ms: int) -> list[Effect]:
    """Remove the members one by one; each has an error of its own."""
    group = shard.live_group(event.group_id)
    if group is None:
        errors = [ErrorCode.UNKNOWN_MEMBER_ID] * len(event.leavers)
        return [Reply(event.request_id, Left(ErrorCode.NONE, errors))]

    had_members = bool(group.members)
    effects: list[Effect] = []
    errors = []
    for leaver in event.leavers:
        error, removed = _leave(shard, group, leaver, event.client_id, now_ms)
        errors.append(error)
        effects += removed
    if had_members and not group.members and _is_reset(event):
        effects += _hold(shard, group, event.connection, now_ms)
    shard.release_group(event.group_id)
    return [*effects, Reply(event.request_id, Left(ErrorCode.NONE, errors))]


def _leave(
    shard: GroupShard, group: Group, leaver: Leaver, client_id: str, now_ms: int
) -> tuple[ErrorCode, list[Effect]]:
    # A client that was given an id and did not join with it.
    if leaver.member_id in group.handed_out:
        group.take_back(leaver.member_id)
        return ErrorCode.NONE, try_complete(group, now_ms)

    # An administrator may name the instance alone.
    member_id = leaver.member_id
    if not member_id and leaver.group_instance_id is not None:
        member_id = group.static_members.get(leaver.group_instance_id, "")
    error = refusal(group, member_id, leaver.group_instance_id)
    if error:
        return error, []

    member = group.members[member_id]
    trigger = _trigger(member, leaver, client_id)
    return error, remove_member(group, member, trigger, shard.config, now_ms)


def _trigger(member: Member, leaver: Leaver, client_id: str) -> Trigger:
    """Return whose doing it was: a client leaves for itself, so another one has removed it."""
    is_other = not leaver.member_id or client_id != member.client_id
    if (leaver.reason or "").startswith(POLL_TIMEOUT_REASON):
        cause = Cause.POLL_INTERVAL_EXCEEDED
    else:
        cause = Cause.MEMBER_KICKED if is_other else Cause.MEMBER_LEFT
    is_inferred = cause is Cause.MEMBER_KICKED and leaver.reason is None
    return Trigger(cause, member.member_id, member.client_id, leaver.reason, is_inferred)


# ---- resets of groups with members


def _is_reset(event: Leave) -> bool:
    """Return whether it is `kgroup reset` that removes the members."""
    return all((leaver.reason or "").startswith(RESET_REASON) for leaver in event.leavers)


def _hold(shard: GroupShard, group: Group, connection: int, now_ms: int) -> list[Effect]:
    """Let nobody join until the offsets are written, or the time for it is over."""
    # Those who were about to join start again afterwards.
    group.take_back_all()
    effects: list[Effect] = []
    if group.state is GroupState.PREPARING_REBALANCE:
        effects += complete(group, now_ms)
    assert group.state is GroupState.EMPTY, "all members are removed"

    group.held_by = connection
    return [*effects, SetTimer(HoldEnded(group.group_id), shard.config.reset_hold_ms)]


def end_hold(shard: GroupShard, event: HoldEnded, now_ms: int) -> list[Effect]:
    """Let members join again."""
    group = shard.live.get(event.group_id)
    if group is not None:
        group.held_by = None
        shard.release_group(event.group_id)
    return []
