"""SyncGroup: the leader's assignments are written, and each member gets its own.

Requests are parked until the record is replicated: what a member was assigned is then known to any
broker that coordinates the group after this one (KAFKA-2017).
"""

from __future__ import annotations

from groups.coordinator.append_errors import GROUP_ERRORS
from groups.coordinator.membership.events import AssignmentStored, Sync
from groups.coordinator.membership.group import Group, Member
from groups.coordinator.membership.history import Cause
from groups.coordinator.membership.rebalance import (
    end_history,
    prepare,
    remove_member,
    respond_to_syncs,
    restart_session,
    synced,
    trigger_of,
)
from groups.coordinator.membership.responses import Synced
from groups.coordinator.membership.state import GroupState
from groups.coordinator.membership.static_members import refusal
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Reply
from offsets.records import GroupKey
from protocol.errors import ErrorCode

MAX_OVERSIZED = 3
"""Records in a row that are too large for the log before the leader that sends them is removed."""

_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


def sync(shard: GroupShard, event: Sync, now_ms: int) -> list[Effect]:
    """Decide a SyncGroup."""
    group = shard.live_group(event.group_id)
    error = ErrorCode.UNKNOWN_MEMBER_ID if group is None else _refusal(group, event)
    if error or group is None:
        return [Reply(event.request_id, Synced(error))]

    # Stable: the assignment is there.
    member = group.members[event.member_id]
    group.note_synced(member.member_id)
    if group.state is GroupState.STABLE:
        return [Reply(event.request_id, synced(group, member)), restart_session(member)]

    # Else wait for the leader's.
    effects = _park(member, event)
    if member.member_id == group.leader_id:
        effects.append(_store(shard, group, event))
    return effects


def _refusal(group: Group, event: Sync) -> ErrorCode:
    error = refusal(group, event.member_id, event.group_instance_id)
    if error:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION

    # The client may be of another mind about the protocol (KIP-559).
    if event.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if event.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _park(member: Member, event: Sync) -> list[Effect]:
    """Park the request. One that the member sent before ends: its client has gone on."""
    effects: list[Effect] = []
    if member.parked_sync is not None:
        effects.append(Reply(member.parked_sync, Synced(ErrorCode.REBALANCE_IN_PROGRESS)))
    member.parked_sync = event.request_id
    return effects


def _store(shard: GroupShard, group: Group, event: Sync) -> Append:
    # Members that the leader leaves out get no bytes; ids that are no members are left out.
    record = (GroupKey(group.group_id), group.record(dict(event.assignments)))
    stored = AssignmentStored(group.group_id, group.generation_id)
    return Append([record], then=stored, timeout_ms=shard.write_timeout_ms)


def end_store(shard: GroupShard, event: AssignmentStored, now_ms: int) -> list[Effect]:
    """Give the members their assignments, or have them join again if the record is not written."""
    group = shard.live.get(event.group_id)
    # The generation may have ended while its record was written.
    if (
        group is None
        or group.state is not GroupState.COMPLETING_REBALANCE
        or group.generation_id != event.generation_id
    ):
        return []
    if event.error:
        return _fail(shard, group, event.error, now_ms)

    # The record that was replayed says what each member has.
    for member in shard.groups[group.group_id].members:
        group.members[member.member_id].assignment = member.assignment
    shard.groups.shed(group.group_id)
    group.oversized = 0
    group.move_to(GroupState.STABLE, now_ms)
    return [
        *respond_to_syncs(group),
        *end_history(group, now_ms, is_assigned=True),
    ]


def _fail(shard: GroupShard, group: Group, error: ErrorCode, now_ms: int) -> list[Effect]:
    is_too_large = error in _TOO_LARGE
    group.oversized = group.oversized + 1 if is_too_large else 0
    response = Synced(GROUP_ERRORS.get(error, error))
    effects = respond_to_syncs(group, response)

    reason = f"the assignment could not be written: {error.name}"
    if is_too_large:
        reason += ", the record exceeds max.message.bytes of __consumer_offsets"

    # A leader that goes on like this keeps the others from consuming.
    leader = group.members[group.leader_id or ""]
    if group.oversized >= MAX_OVERSIZED:
        group.oversized = 0
        trigger = trigger_of(
            Cause.MEMBER_KICKED, leader, f"{reason}, {MAX_OVERSIZED} times in a row"
        )
        return effects + remove_member(group, leader, trigger, shard.config, now_ms)
    trigger = trigger_of(Cause.REBALANCE_TIMED_OUT, leader, reason)
    return effects + prepare(group, trigger, shard.config, now_ms)
