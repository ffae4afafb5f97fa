"""What ListGroups and DescribeGroups show of a shard's groups."""

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
class GroupDescription:
    """A group as DescribeGroups shows it; one of which nothing is kept is Dead."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    members: Sequence[GroupMember] = ()


def overviews(shard: GroupShard) -> list[GroupOverview]:
    """All groups of the shard."""
    with_members = [
        GroupOverview(g, kept.protocol_type, STABLE if kept.members else EMPTY)
        for g, kept in shard.groups.items()
    ]
    only_commit = [
        GroupOverview(g, "", EMPTY) for g in shard.offsets.groups() if g not in shard.groups
    ]
    return with_members + only_commit


def describe(shard: GroupShard, group_id: str) -> GroupDescription:
    """One group."""
    kept = shard.groups.get(group_id)
    if kept is None:
        return GroupDescription(group_id, EMPTY if shard.knows(group_id) else DEAD)
    if not kept.members:
        return GroupDescription(group_id, EMPTY, kept.protocol_type)
    return GroupDescription(
        group_id, STABLE, kept.protocol_type, kept.protocol or "", tuple(kept.members)
    )
