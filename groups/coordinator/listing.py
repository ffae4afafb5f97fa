"""Groups of a shard, as ListGroups and DescribeGroups show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def overviews(shard: GroupShard) -> Iterator[GroupOverview]:
    """Go through all groups of the shard, as they are when their turn comes."""
    for group_id in dict.fromkeys((*shard.groups, *shard.live, *shard.offsets.groups())):
        if shard.knows(group_id):
            yield GroupOverview(
                group_id, _protocol_type(shard, group_id), state_of(shard, group_id)
            )


def _protocol_type(shard: GroupShard, group_id: str) -> str:
    if (group := shard.live.get(group_id)) is not None:
        return group.protocol_type
    # One with members is not live yet while its partition is being loaded.
    metadata = shard.groups.get(group_id)
    return "" if metadata is None else metadata.protocol_type


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
