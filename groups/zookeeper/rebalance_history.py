"""Make an event of `__group_events` of a rebalance of a group in ZooKeeper. Pure.

Nobody leads such a group, and nobody sends a reason. Each member notes the group as it was when the
member last settled. When it settles again, the one whose id sorts first says what is different.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from groups.group_event import ZOOKEEPER, GroupEvent
from groups.zookeeper.assignment import ASSIGNORS
from groups.zookeeper.events import GroupSnapshot
from groups.zookeeper.membership_state import Membership, Phase
from groups.zookeeper.registration import consumer_of, threads_by_topic
from protocol.topic_partition import TopicPartition

Owners = Mapping[TopicPartition, str]


@attrs.define(eq=False)
class RebalanceHistory:
    """The group of one member as it was at the last rest."""

    group_id: str
    _last: Membership | None = None
    _unsettled_since_ms: int | None = None

    def note(self, member: Membership, now_ms: int) -> GroupEvent | None:
        """Note a member behind each of its events; return the event of a rebalance that has ended.

        `now_ms` is the wall clock. Another member writes the event if this one's id is not the
        first, and there is none if the group is as it was.
        """
        if member.phase is not Phase.SETTLED:
            if self._unsettled_since_ms is None:
                self._unsettled_since_ms = now_ms
            return None

        # It was settled before this event too.
        if self._unsettled_since_ms is None:
            return None
        started_ms, self._unsettled_since_ms = self._unsettled_since_ms, None
        last, self._last = self._last, member

        assert member.snapshot is not None, "a settled member has read its group"
        if member.consumer_id != min(member.snapshot.members):
            return None
        if last is None or last.snapshot is None:
            before, owners = _without(member)
        else:
            before, owners = last.snapshot, last.assignment
        return _describe(self.group_id, before, owners, member, started_ms, now_ms)


def _without(member: Membership) -> tuple[GroupSnapshot, Owners]:
    """Return the group as it was before this member joined, and who owned what."""
    snapshot = member.snapshot
    assert snapshot is not None, "a settled member has read its group"
    others = {
        consumer_id: subscription
        for consumer_id, subscription in snapshot.members.items()
        if consumer_id != member.consumer_id
    }
    settings = member.settings
    threads = threads_by_topic(others, snapshot.all_topics, settings.exclude_internal_topics)
    assign = ASSIGNORS[settings.partition_assignment_strategy]
    before = attrs.evolve(snapshot, members=others)
    return before, assign(threads, snapshot.partitions, snapshot.leaders)


def _describe(
    group_id: str,
    before: GroupSnapshot,
    owners: Owners,
    member: Membership,
    started_ms: int,
    ended_ms: int,
) -> GroupEvent | None:
    after = member.snapshot
    assert after is not None, "a settled member has read its group"
    added = after.members.keys() - before.members.keys()
    gone = before.members.keys() - after.members.keys()
    moved = sum(
        1
        for partition, thread_id in member.assignment.items()
        if partition not in owners or consumer_of(owners[partition]) != consumer_of(thread_id)
    )
    cause = _find_cause(before, after)
    if cause is None and not moved:
        return None

    # Without another cause it is the leaders that have changed, by which `clustered` assigns.
    trigger, member_id = cause or ("partitions_added", None)
    return GroupEvent(
        group=group_id,
        coordination=ZOOKEEPER,
        trigger=trigger,
        member_id=member_id,
        started_ms=started_ms,
        ended_ms=ended_ms,
        members_added=sorted(added),
        members_gone=sorted(gone),
        members_kept=sorted(before.members.keys() & after.members.keys()),
        partitions_moved=moved,
        partitions_kept=len(member.assignment) - moved,
        inferred=True,
    )


def _find_cause(before: GroupSnapshot, after: GroupSnapshot) -> tuple[str, str | None] | None:
    """Return the trigger, and the member behind it if one alone can be; None without a cause."""
    gone = sorted(before.members.keys() - after.members.keys())
    if gone:
        return "member_left", gone[0]
    added = sorted(after.members.keys() - before.members.keys())
    if added:
        return "member_joined", added[0]

    resubscribed = sorted(
        consumer_id
        for consumer_id, subscription in after.members.items()
        if subscription.key != before.members[consumer_id].key
    )
    if resubscribed:
        return "subscription_changed", resubscribed[0]

    counts = {topic: len(partitions) for topic, partitions in before.partitions.items()}
    counts_now = {topic: len(partitions) for topic, partitions in after.partitions.items()}
    if any(count and not counts_now.get(topic) for topic, count in counts.items()):
        return "topic_deleted", None
    if any(count > counts.get(topic, 0) for topic, count in counts_now.items()):
        return "partitions_added", None
    return None
