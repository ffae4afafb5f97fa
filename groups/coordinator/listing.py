"""Groups of a shard, as ListGroups and DescribeGroups show them."""

from __future__ import annotations

from collections.abc import Sequence

from groups.coordinator.membership.group import Group, Member
from groups.coordinator.membership.state import GroupState
from groups.coordinator.shard import GroupShard
from protocol.frozen import frozen

DEAD = "Dead"
"""The state of a group that nobody knows."""


@frozen
class GroupOverview:
    """A line of ListGroups; the protocol type is empty for a group that only commits."""

    group_id: str
    protocol_type: str
    state: str


@frozen
class MemberDetails:
    """A member as DescribeGroups shows it; without bytes while the group rebalances."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@frozen
class GroupDetails:
    """A group as DescribeGroups shows it; an unknown one is Dead."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[MemberDetails] = ()


def overviews(shard: GroupShard) -> list[GroupOverview]:
    """List all groups of the shard."""
    with_record = [
        _overview_by_record(shard, group_id)
        for group_id in shard.groups
        if group_id not in shard.live
    ]
    live = [
        GroupOverview(group_id, group.protocol_type, group.state.value)
        for group_id, group in shard.live.items()
    ]
    only_commit = [
        GroupOverview(group_id, "", GroupState.EMPTY.value)
        for group_id in shard.offsets.groups()
        if group_id not in shard.groups and group_id not in shard.live
    ]
    return with_record + live + only_commit


def _overview_by_record(shard: GroupShard, group_id: str) -> GroupOverview:
    # One with members is not live yet while its partition is being loaded.
    protocol_type = shard.groups[group_id].protocol_type
    return GroupOverview(group_id, protocol_type, state_of(shard, group_id))


def state_of(shard: GroupShard, group_id: str) -> str:
    """Return the name of the state of a group of the shard."""
    if (group := shard.live.get(group_id)) is not None:
        return group.state.value
    metadata = shard.groups.get(group_id)
    has_members = metadata is not None and bool(metadata.members)
    state = GroupState.STABLE if has_members else GroupState.EMPTY
    return state.value


def describe(shard: GroupShard, group_id: str) -> GroupDetails:
    """Describe one group."""
    group = shard.live_group(group_id)
    if group is not None:
        return GroupDetails(
            group_id,
            group.state.value,
            group.protocol_type,
            (group.protocol_name or "") if group.is_stable else "",
            tuple(_describe_member(group, member) for member in group.members.values()),
        )

    # As in Kafka, a group that nobody knows is no error.
    if not shard.knows(group_id):
        return GroupDetails(group_id, DEAD)
    metadata = shard.groups.get(group_id)
    protocol_type = "" if metadata is None else metadata.protocol_type
    return GroupDetails(group_id, GroupState.EMPTY.value, protocol_type)


def _describe_member(group: Group, member: Member) -> MemberDetails:
    # Between two generations nothing is chosen or assigned.
    is_stable = group.is_stable
    return MemberDetails(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.metadata_for(group.protocol_name) if is_stable else b"",
        member.assignment if is_stable else b"",
    )
