"""The assignor `range`: consecutive partitions of each topic, topic by topic."""

from __future__ import annotations

from collections.abc import Sequence

from groups.assignors.assignor import Assignments, PartitionCounts
from groups.assignors.members import MemberSubscription, sort_members
from protocol.consumer_protocol import Assignment
from protocol.topic_partition import TopicPartition


def assign_range(
    partition_counts: PartitionCounts, members: Sequence[MemberSubscription]
) -> Assignments:
    """Give each subscriber of a topic a consecutive share of it.

    Of P partitions and C subscribers, the first P % C subscribers get one partition more. So
    partitions of the same number in topics of the same size have the same owner.
    """
    shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    subscribers_of = _subscribers_by_topic(members)

    for topic in sorted(subscribers_of.keys() & partition_counts.keys()):
        count = partition_counts[topic]
        subscribers = subscribers_of[topic]
        share, extra = divmod(count, len(subscribers))

        # Subscribers beyond the number of partitions get none.
        for index, member_id in enumerate(subscribers[:count]):
            start = share * index + min(index, extra)
            end = start + share + (index < extra)
            shares[member_id] += [TopicPartition(topic, number) for number in range(start, end)]

    return {member_id: Assignment(tuple(share)) for member_id, share in shares.items()}


def _subscribers_by_topic(members: Sequence[MemberSubscription]) -> dict[str, list[str]]:
    """Return the ids of each topic's subscribers, in the order of members."""
    subscribers_of: dict[str, list[str]] = {}
    for member in sort_members(members):
        # A client may name a topic twice.
        for topic in dict.fromkeys(member.subscription.topics):
            subscribers_of.setdefault(topic, []).append(member.member_id)
    return subscribers_of
