"""The assignor `roundrobin`: all partitions of all topics, dealt out in turn."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from groups.assignors.assignor import Assignments, PartitionCounts
from groups.assignors.members import MemberSubscription, sort_members
from protocol.consumer_protocol import Assignment
from protocol.topic_partition import TopicPartition


def assign_round_robin(
    partition_counts: PartitionCounts, members: Sequence[MemberSubscription]
) -> Assignments:
    """Deal out partitions in the order of topic and number, and skip members without the topic."""
    shares: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
    ring = sort_members(members)
    places_of = _subscribers_by_place(ring)

    turn = 0
    for topic in sorted(places_of.keys() & partition_counts.keys()):
        places = places_of[topic]
        for number in range(partition_counts[topic]):
            # Take the next subscriber in the ring, from `turn` on. The first follows the last.
            index = bisect_left(places, turn)
            place = places[index] if index < len(places) else places[0]

            shares[ring[place].member_id].append(TopicPartition(topic, number))
            turn = place + 1

    return {member_id: Assignment(tuple(share)) for member_id, share in shares.items()}


def _subscribers_by_place(ring: Sequence[MemberSubscription]) -> dict[str, list[int]]:
    """Return the places of each topic's subscribers in the ring, ascending."""
    places_of: dict[str, list[int]] = {}
    for place, member in enumerate(ring):
        for topic in dict.fromkeys(member.subscription.topics):
            places_of.setdefault(topic, []).append(place)
    return places_of
