"""Groups of a shard, as ListGroups and DescribeGroups show them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from groups.coordinator.shard import GroupShard
from offsets.records import GroupMember

DEAD, EMPTY, STABLE = "Dead", "Empty", "Stable"


@attrs.frozen
class GroupOverview:
    """A line of ListGroups; the protocol type is empty for a group that only commits."""

    group_id: str
    protocol_type: str
    state: str


@attrs.frozen
class GroupDetails:
    """A group as DescribeGroups shows it; an unknown one is Dead."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[GroupMember] = ()


def overviews(shard: GroupShard) -> list[GroupOverview]:
    """List all groups of the shard."""
    with_record = [
        GroupOverview(group_id, metadata.protocol_type, STABLE if metadata.members else EMPTY)
        for group_id, metadata in shard.groups.items()
    ]
    only_commit = [
        GroupOverview(group_id, "", EMPTY)
        for group_id in shard.offsets.groups()
        if group_id not in shard.groups
    ]
    return with_record + only_commit


def describe(shard: GroupShard, group_id: str) -> GroupDetails:
    """Describe one group."""
    metadata = shard.groups.get(group_id)
    # As in Kafka, a group that nobody knows is no error.
    if metadata is None:
        return GroupDetails(group_id, EMPTY if shard.knows(group_id) else DEAD)

    if not metadata.members:
        return GroupDetails(group_id, EMPTY, metadata.protocol_type)
    return GroupDetails(
        group_id,
        STABLE,
        metadata.protocol_type,
        metadata.protocol or "",
        tuple(metadata.members),
    )
