"""Groups with members when their coordinator changes: they go on with the generation they have."""

from __future__ import annotations

from groups.coordinator.append_errors import GROUP_ERRORS
from groups.coordinator.events import GroupsLoaded
from groups.coordinator.membership.events import EmptyGroupStored
from groups.coordinator.membership.group import Group
from groups.coordinator.membership.history import Cause, Rebalanced, Trigger
from groups.coordinator.membership.rebalance import (
    notes,
    prepare,
    respond_to_removed,
    restart_session,
)
from groups.coordinator.responses import Done
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Effect, Publish, Reply
from groups.runtime.events import Unloaded
from protocol.errors import ErrorCode


def load(shard: GroupShard, event: GroupsLoaded, now_ms: int) -> list[Effect]:
    """Give each member a whole session timeout, to find this coordinator."""
    effects: list[Effect] = []
    for group_id in event.group_ids:
        group = shard.live_group(group_id)
        # It has no members, or they are gone again.
        if group is None or not group.members:
            continue
        effects += [restart_session(member) for member in group.members.values()]
        effects.append(Publish(_history(group, now_ms)))

        # The other coordinator had a larger group.max.size.
        if len(group.members) > shard.config.max_size and group.is_stable:
            reason = f"{len(group.members)} members, of which group.max.size allows fewer"
            trigger = Trigger(Cause.COORDINATOR_LOADED, reason=reason)
            effects += prepare(group, trigger, shard.config, now_ms)
    return effects


def unload(shard: GroupShard, event: Unloaded, now_ms: int) -> list[Effect]:
    """End all parked requests: the members look for the new coordinator."""
    effects: list[Effect] = []
    for group in shard.live.values():
        for member in group.members.values():
            effects += respond_to_removed(group, member, ErrorCode.NOT_COORDINATOR)
    shard.live.clear()

    # Deletions whose slices are not all decided; the appends of the others end with an error.
    for request_id in shard.deletions:
        effects.append(Reply(request_id, Done(ErrorCode.NOT_COORDINATOR)))
    shard.deletions.clear()
    return effects


def end_empty(shard: GroupShard, event: EmptyGroupStored, now_ms: int) -> list[Effect]:
    """Keep no more of an empty group than its record, if that was written and says so.

    The rebalance that has left it empty is published then, and not before.
    """
    shard.release_group(event.group_id)
    error = GROUP_ERRORS.get(event.error, event.error)
    # Its members are at another coordinator, and silent here alone (fault groups-9).
    if error is ErrorCode.NOT_COORDINATOR:
        return []
    return [] if event.ended is None else [Publish(event.ended)]


def _history(group: Group, now_ms: int) -> Rebalanced:
    members = notes(group)
    return Rebalanced(
        group.group_id,
        group.protocol_type,
        Trigger(Cause.COORDINATOR_LOADED),
        group.generation_id,
        group.generation_id,
        now_ms,
        now_ms,
        members,
        members,
        {},
        (),
        is_assigned=True,
    )
