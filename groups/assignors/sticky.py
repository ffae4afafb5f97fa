"""The assignors `sticky` and `cooperative-sticky`: balanced, and with as few moves as possible.

They share one algorithm, in two variants: one for members that all subscribe to the same topics
(`constrained`), one for others (`general`). Topics that do not exist make no difference.

With `cooperative-sticky` members keep what they own while a rebalance runs. So a partition that
another member has to release first is assigned to nobody. Once it is released that member joins
again, and in the rebalance that follows the partition is free.

The sources are KIP-54, KIP-341, KIP-429 and AbstractStickyAssignor of Kafka 3.8. Racks (KIP-881)
are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from groups.assignors.assignor import Assignments, PartitionCounts
from groups.assignors.claims import Claim, read_cooperative_claim, read_sticky_claim
from groups.assignors.constrained import share_evenly
from groups.assignors.general import share_among_subscribers
from groups.assignors.members import MemberSubscription, topics_by_member
from groups.assignors.ownership import Ownership, settle_claims
from protocol.consumer_protocol import Assignment, Subscription
from protocol.topic_partition import TopicPartition

Shares = dict[str, list[TopicPartition]]


def assign_sticky(
    partition_counts: PartitionCounts, members: Sequence[MemberSubscription]
) -> Assignments:
    """Assign what the members of an eager group get, who own nothing at this moment."""
    ownership = _settle(partition_counts, members, read_sticky_claim)
    shares = _share_out(partition_counts, members, ownership)
    return {member_id: Assignment(tuple(share)) for member_id, share in shares.items()}


def assign_cooperative_sticky(
    partition_counts: PartitionCounts, members: Sequence[MemberSubscription]
) -> Assignments:
    """Assign what the members may have at once, without what others must release first."""
    ownership = _settle(partition_counts, members, read_cooperative_claim)
    shares = _share_out(partition_counts, members, ownership)
    return {
        member_id: Assignment(
            tuple(p for p in share if not ownership.must_release_first(p, member_id))
        )
        for member_id, share in shares.items()
    }


def _settle(
    partition_counts: PartitionCounts,
    members: Sequence[MemberSubscription],
    read_claim: Callable[[Subscription], Claim],
) -> Ownership:
    claims = {member.member_id: read_claim(member.subscription) for member in members}
    return settle_claims(partition_counts, claims)


def _share_out(
    partition_counts: PartitionCounts, members: Sequence[MemberSubscription], ownership: Ownership
) -> Shares:
    """Share out the partitions of all topics that members subscribe to."""
    topics_of = topics_by_member(members, partition_counts)
    subscriptions = set(topics_of.values())
    if len(subscriptions) != 1:
        return share_among_subscribers(partition_counts, topics_of, ownership)

    topics = subscriptions.pop()
    partitions = [
        TopicPartition(topic, number)
        for topic in sorted(topics)
        for number in range(partition_counts[topic])
    ]
    return share_evenly(partitions, _owned_by(topics_of, ownership))


def _owned_by(topics_of: Mapping[str, frozenset[str]], ownership: Ownership) -> Shares:
    """Return what each member owns of the topics that it subscribes to."""
    owned_by: Shares = {member_id: [] for member_id in topics_of}
    for partition, member_id in ownership.owner_of.items():
        if partition.topic in topics_of[member_id]:
            owned_by[member_id].append(partition)
    return owned_by
