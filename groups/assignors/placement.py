"""Partitions in the hands of members, while the sticky assignment of a group is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from groups.assignors.ownership import Ownership
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class Placement:
    """The holder of each partition, which changes in place.

    A partition's *home* is the member that owned it before and still subscribes to its topic. It
    has none if nobody did. At the end, a partition that is not at its home has moved.

    The subscribers of a topic are in the order in which they are preferred among equals.
    """

    partitions_of: Mapping[str, Sequence[TopicPartition]]
    topics_of: Mapping[str, frozenset[str]]
    subscribers_of: Mapping[str, Sequence[str]]
    home_of: Mapping[TopicPartition, str]
    previous_owner_of: Mapping[TopicPartition, str]
    holder_of: dict[TopicPartition, str]
    loads: dict[str, int]

    def is_home(self, partition: TopicPartition) -> bool:
        """Return whether the partition's holder owned it before."""
        return self.home_of.get(partition) == self.holder_of[partition]

    def move(self, partition: TopicPartition, member_id: str) -> None:
        """Give a partition to a member, and take it from its holder, if it has one."""
        holder = self.holder_of.get(partition)
        if holder is not None:
            self.loads[holder] -= 1

        self.holder_of[partition] = member_id
        self.loads[member_id] += 1


def place_at_home(
    partition_counts: Mapping[str, int],
    topics_of: Mapping[str, frozenset[str]],
    ownership: Ownership,
) -> Placement:
    """Return a placement in which each partition that has a home is there, and no other."""
    subscribers_of: dict[str, list[str]] = {}
    for member_id in sorted(topics_of):
        for topic in topics_of[member_id]:
            subscribers_of.setdefault(topic, []).append(member_id)

    home_of = _owners_that_subscribe(ownership.owner_of, topics_of)
    loads = dict.fromkeys(topics_of, 0)
    for member_id in home_of.values():
        loads[member_id] += 1

    return Placement(
        partitions_of={
            topic: [TopicPartition(topic, number) for number in range(partition_counts[topic])]
            for topic in subscribers_of
        },
        topics_of=topics_of,
        # Topics that only few members can take are shared out first.
        subscribers_of={
            topic: subscribers_of[topic]
            for topic in sorted(
                subscribers_of, key=lambda topic: (len(subscribers_of[topic]), topic)
            )
        },
        home_of=home_of,
        previous_owner_of=_owners_that_subscribe(ownership.previous_owner_of, topics_of),
        holder_of=dict(home_of),
        loads=loads,
    )


def _owners_that_subscribe(
    owner_of: Mapping[TopicPartition, str], topics_of: Mapping[str, frozenset[str]]
) -> dict[TopicPartition, str]:
    # In a fixed order: that in which a member lists its partitions must make no difference.
    return {
        partition: member_id
        for partition, member_id in sorted(owner_of.items())
        if partition.topic in topics_of[member_id]
    }
