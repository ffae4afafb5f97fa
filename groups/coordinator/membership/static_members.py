"""Static members: a client that restarts within its session goes on where it was (KIP-345).

It joins without a member id, but with its instance id, and takes the place of the member that had
it before. In a stable group nobody else notices. The former client is fenced from then on.
"""

from __future__ import annotations

import attrs

from groups.coordinator.append_errors import GROUP_ERRORS
from groups.coordinator.membership.events import Join, ReplacementStored
from groups.coordinator.membership.group import Group, Member
from groups.coordinator.membership.history import Cause, MemberNote, Rebalanced
from groups.coordinator.membership.rebalance import (
    joined,
    joined_members,
    notes,
    prepare,
    respond_to_removed,
    restart_session,
    trigger_of,
)
from groups.coordinator.membership.responses import Joined
from groups.coordinator.membership.state import GroupState
from groups.coordinator.shard import GroupShard
from groups.runtime.effects import Append, Effect, Publish, Reply
from offsets.records import GroupKey
from protocol.errors import ErrorCode


def refusal(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return why a request of this member, or instance, does not count; NONE if it does."""
    if group_instance_id is not None:
        known_id = group.static_members.get(group_instance_id)
        if known_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        # Another client has the same instance id, and came later.
        if known_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def replace(shard: GroupShard, group: Group, event: Join, now_ms: int) -> list[Effect]:
    """Put a client that has restarted in the place of the member with its instance id."""
    assert event.group_instance_id is not None
    member = group.members[group.static_members[event.group_instance_id]]
    stored = ReplacementStored(
        event.request_id,
        group.group_id,
        event.new_member_id,
        member.member_id,
        member.protocols,
        member.session_timeout_ms,
        member.rebalance_timeout_ms,
        group.leader_id or "",
        event.can_skip_assignment,
    )

    # What the former client waits for never comes.
    effects = respond_to_removed(group, member, ErrorCode.FENCED_INSTANCE_ID)
    group.rename(member, event.new_member_id)
    group.set_protocols(member, event.protocols)
    member.session_timeout_ms = event.session_timeout_ms
    member.rebalance_timeout_ms = event.rebalance_timeout_ms
    member.connection = event.connection
    effects.append(restart_session(member))
    group.park_join(member, event.request_id)
    group.note_joined(member, now_ms)

    # A stable group stays as it is, if its assignor does.
    if group.state is GroupState.STABLE and group.choose_protocol() == group.protocol_name:
        return [*effects, *_store(shard, group, [stored])]

    # A leader may have assigned to the former id already (KAFKA-9801).
    if group.state is not GroupState.PREPARING_REBALANCE:
        is_stable = group.state is GroupState.STABLE
        cause = Cause.SUBSCRIPTION_CHANGED if is_stable else Cause.MEMBER_JOINED
        trigger = trigger_of(cause, member, event.reason)
        effects += prepare(group, trigger, shard.config, now_ms)
        group.note_joined(member, now_ms)
    return effects


def _store(shard: GroupShard, group: Group, replacements: list[ReplacementStored]) -> list[Effect]:
    """Write the group's record with these replacements, once the last one is written.

    It has all members: of a thousand that restart together one record each would be their square.
    """
    if group.replacements is not None:
        group.replacements += replacements
        return []
    group.replacements = []
    first, *others = replacements
    assignments = {known.member_id: known.assignment for known in group.members.values()}
    record = (GroupKey(group.group_id), group.record(assignments))
    stored = attrs.evolve(first, beside=tuple(others))
    return [Append([record], then=stored, timeout_ms=shard.write_timeout_ms)]


def end_replacement(shard: GroupShard, event: ReplacementStored, now_ms: int) -> list[Effect]:
    """Respond to the clients when their record is written; take them out again if that failed."""
    group = shard.live.get(event.group_id)
    if group is None:
        return []
    waiting = group.replacements or []
    group.replacements = None

    effects: list[Effect] = []
    ended = [each for each in (event, *event.beside) if _is_wanted(group, each)]
    if ended and not event.error:
        shard.groups.shed(group.group_id)
        members = notes(group)
        for replacement in ended:
            effects += _end(group, replacement, members, now_ms)
    else:
        for replacement in ended:
            effects += _undo(group, replacement, event.error)

    # Those that came meanwhile.
    wanted = [each for each in waiting if _is_wanted(group, each)]
    return effects + (_store(shard, group, wanted) if wanted else [])


def _is_wanted(group: Group, replacement: ReplacementStored) -> bool:
    """Return whether a client waits for this; a rebalance that began since gives the response."""
    member = group.members.get(replacement.member_id)
    is_waiting = member is not None and member.parked_join == replacement.request_id
    return is_waiting and group.state is GroupState.STABLE


def _end(
    group: Group, event: ReplacementStored, members: tuple[MemberNote, ...], now_ms: int
) -> list[Effect]:
    member = group.members[event.member_id]
    group.take_join(member)
    return [
        Publish(_history(group, member, event.former_id, members, now_ms)),
        # Its session was not counted while the request was parked.
        restart_session(member),
        Reply(event.request_id, _response(group, member, event)),
    ]


def _undo(group: Group, event: ReplacementStored, error: ErrorCode) -> list[Effect]:
    member = group.members[event.member_id]
    group.take_join(member)
    group.rename(member, event.former_id)
    group.set_protocols(member, event.former_protocols)
    member.session_timeout_ms = event.former_session_timeout_ms
    member.rebalance_timeout_ms = event.former_rebalance_timeout_ms

    response = Joined(GROUP_ERRORS.get(error, error), generation_id=group.generation_id)
    return [restart_session(member), Reply(event.request_id, response)]


def _response(group: Group, member: Member, event: ReplacementStored) -> Joined:
    """Return the generation as it stands.

    A leader that has restarted must not assign once more, because nobody would ask for it. An older
    client gets the former leader's id, which is not its own; a newer one can be told (KIP-814).
    """
    if member.member_id != group.leader_id:
        return joined(group, member)

    can_skip = event.can_skip_assignment
    return Joined(
        ErrorCode.NONE,
        member.member_id,
        group.generation_id,
        group.protocol_type,
        group.protocol_name,
        member.member_id if can_skip else event.former_leader_id,
        joined_members(group) if can_skip else (),
        skip_assignment=can_skip,
    )


def _history(
    group: Group, member: Member, former_id: str, members: tuple[MemberNote, ...], now_ms: int
) -> Rebalanced:
    return Rebalanced(
        group.group_id,
        group.protocol_type,
        trigger_of(Cause.STATIC_MEMBER_REPLACED, member, f"in the place of {former_id}"),
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
