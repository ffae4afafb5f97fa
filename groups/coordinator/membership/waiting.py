"""End the waits of a group for its members.

| the group | waits for | how long |
|---|---|---|
| was empty, and prepares a rebalance | more members | the initial delay, again while they come |
| prepares a rebalance | JoinGroup of all members | the rebalance timeout |
| has a new generation | SyncGroup of all members | the rebalance timeout |
"""

from __future__ import annotations

from groups.coordinator.membership.events import WaitEnded
from groups.coordinator.membership.group import Group, InitialDelay
from groups.coordinator.membership.history import Cause
from groups.coordinator.membership.rebalance import (
    complete,
    notes,
    prepare,
    respond_to_removed,
    trigger_of,
    try_complete,
    wait,
)
from groups.coordinator.membership.state import GroupState
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Effect
from protocol.errors import ErrorCode


def end_wait(shard: GroupShard, event: WaitEnded, now_ms: int) -> list[Effect]:
    """Go on without those who are late. If nobody is, the group has waited for nothing."""
    group = shard.live.get(event.group_id)
    if group is None:
        return []
    if group.initial_delay is not None:
        return _end_initial_delay(shard, group, group.initial_delay, now_ms)
    if group.state is GroupState.PREPARING_REBALANCE:
        return complete(group, now_ms)
    if group.unsynced:
        return _remove_unsynced(shard, group, now_ms)
    return []


def _end_initial_delay(
    shard: GroupShard, group: Group, ended: InitialDelay, now_ms: int
) -> list[Effect]:
    """Complete the first join, or wait on while members keep coming."""
    if not ended.has_newcomer or not ended.remaining_ms:
        return complete(group, now_ms)
    delay_ms = min(shard.config.initial_rebalance_delay_ms, ended.remaining_ms)
    remaining_ms = max(ended.remaining_ms - ended.delay_ms, 0)
    group.initial_delay = InitialDelay(delay_ms, remaining_ms)
    return [wait(group, delay_ms)]


def _remove_unsynced(shard: GroupShard, group: Group, now_ms: int) -> list[Effect]:
    """Remove the members that have joined a generation and never asked for their assignment."""
    before = notes(group)
    late = [member for member in group.members.values() if member.member_id in group.unsynced]
    reason = f"no SyncGroup for {group.rebalance_timeout_ms} ms (max.poll.interval.ms)"
    trigger = trigger_of(Cause.REBALANCE_TIMED_OUT, late[0], reason)
    effects: list[Effect] = []
    for member in late:
        effects += respond_to_removed(group, member, ErrorCode.UNKNOWN_MEMBER_ID)
        group.remove(member)

    effects += prepare(group, trigger, shard.config, now_ms, before)
    assert group.history is not None, "it has just begun"
    group.history.note_timed_out(member.member_id for member in late)
    return effects + try_complete(group, now_ms)
