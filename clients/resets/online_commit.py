"""Commit offsets for a group whose members go on: all are removed, and join again afterwards.

A consumer that learns that it is no longer a member drops its positions, joins again and reads the
committed offsets. Brokers of this project let nobody join between the removal and the commit. At
other brokers a member may come between; then all members are removed once more.
"""

import contextlib
from collections.abc import Collection

from clients.admin import Admin, GroupMemberId
from clients.errors import BrokerError, KgroupError
from groups.coordinator.membership.leave import RESET_REASON
from offsets.store import Offsets
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

TRIES = 3
HAS_MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.NON_EMPTY_GROUP,
    }
)
"""The errors of a commit, or a deletion, from outside for a group that has members."""


class MemberCameBetween(BrokerError):
    """A member joined between the removal of all and the commit, each time."""


async def commit_online(
    admin: Admin,
    group_id: str,
    offsets: Offsets,
    reason: str,
    deleted: Collection[TopicPartition] = (),
) -> int:
    """Remove all members, delete offsets and commit others. Returns the number of members removed.

    Raises MemberCameBetween after TRIES attempts, other BrokerErrors, ClientError.
    """
    removed: set[str] = set()
    for _ in range(TRIES):
        described = (await admin.describe_groups([group_id]))[group_id].group
        members = [
            GroupMemberId(member.member_id, member.group_instance_id)
            for member in described.members
        ]
        if members:
            await admin.remove_group_members(group_id, members, RESET_REASON + reason)
            removed |= {member.member_id for member in members}

        try:
            # Before the commit, which lets members join again (fault core-R7).
            await _delete(admin, group_id, deleted)
            # Also if there is none: this is what lets members join again.
            await admin.commit_group_offsets(group_id, offsets)
        except BrokerError as error:
            if error.code not in HAS_MEMBERS:
                await _let_join(admin, group_id)
                raise
            continue
        return len(removed)

    raise MemberCameBetween(
        ErrorCode.NON_EMPTY_GROUP,
        f"group {group_id}: a member joined between the removal and the commit, {TRIES} times; "
        "nothing was written: run the command again, or stop the members",
    )


async def _let_join(admin: Admin, group_id: str) -> None:
    """End the hold of a group of which nothing more will be written. It ends by itself, too."""
    with contextlib.suppress(KgroupError):
        await admin.commit_group_offsets(group_id, {})


async def _delete(admin: Admin, group_id: str, partitions: Collection[TopicPartition]) -> None:
    """Delete offsets. Raises the first BrokerError, ClientError."""
    if not partitions:
        return
    for error in (await admin.delete_group_offsets(group_id, partitions)).values():
        if error is not None:
            raise error
