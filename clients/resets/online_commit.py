"""Commit offsets for a group whose members go on: all are removed, and join again afterwards.

A consumer that learns that it is no longer a member drops its positions, joins again and reads the
committed offsets. Brokers of this project let nobody join between the removal and the commit. At
other brokers a member may come between; then all members are removed once more.
"""

import contextlib
from collections.abc import Collection

import attrs

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


@attrs.define(eq=False)
class OnlineCommit:
    """Changes the offsets of one group; `deleted` are those that are deleted, also if it fails."""

    admin: Admin
    group_id: str
    reason: str
    deleted: set[TopicPartition] = attrs.field(factory=set)

    async def write(self, offsets: Offsets, deletions: Collection[TopicPartition] = ()) -> None:
        """Remove all members, delete offsets and commit others.

        Raises MemberCameBetween after TRIES attempts, other BrokerErrors, ClientError.
        """
        for _ in range(TRIES):
            described = (await self.admin.describe_groups([self.group_id]))[self.group_id].group
            members = [
                GroupMemberId(member.member_id, member.group_instance_id)
                for member in described.members
            ]
            if members:
                reason = RESET_REASON + self.reason
                await self.admin.remove_group_members(self.group_id, members, reason)

            try:
                # Before the commit, which lets members join again (fault core-R7).
                await self._delete(deletions)
                # Also if there is none: this is what lets members join again.
                await self.admin.commit_group_offsets(self.group_id, offsets)
            except BrokerError as error:
                if error.code not in HAS_MEMBERS:
                    await _let_join(self.admin, self.group_id)
                    raise
                continue
            return

        raise MemberCameBetween(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {self.group_id}: a member joined between the removal and the commit, or "
            f"was not removed, {TRIES} times: run the command again, or stop the members",
        )

    async def _delete(self, partitions: Collection[TopicPartition]) -> None:
        """Delete offsets. Raises the first BrokerError, ClientError."""
        if not partitions:
            return
        verdicts = await self.admin.delete_group_offsets(self.group_id, partitions)
        self.deleted |= {partition for partition, error in verdicts.items() if error is None}
        for error in verdicts.values():
            if error is not None:
                raise error


async def _let_join(admin: Admin, group_id: str) -> None:
    """End the hold of a group of which nothing more will be written. It ends by itself, too."""
    with contextlib.suppress(KgroupError):
        await admin.commit_group_offsets(group_id, {})
