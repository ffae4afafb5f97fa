"""The sticky assignment of members with different subscriptions, which Kafka calls general.

1. Each partition stays with its owner, if that still subscribes to its topic.
2. Each other one goes to the subscriber that holds least; the topics with the fewest subscribers
   come first.
3. Partitions move until the placement is balanced (`balance`).
4. Partitions go back home where that costs no balance (`stickiness`); then 3 again.

Each round of 3 and 4 either improves the balance, or leaves it and moves fewer partitions, so the
rounds end. Java's assignor has steps 1 to 3, and looks for moves partition by partition. There a
record of movements within each topic keeps members from exchanging partitions, which step 4 does
here across topics.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heapreplace

from groups.assignors.balance import balance
from groups.assignors.ownership import Ownership
from groups.assignors.placement import Placement, place_at_home
from groups.assignors.stickiness import bring_home
from protocol.topic_partition import TopicPartition


def share_among_subscribers(
    partition_counts: Mapping[str, int],
    topics_of: Mapping[str, frozenset[str]],
    ownership: Ownership,
) -> dict[str, list[TopicPartition]]:
    """Share out all partitions of the topics in `topics_of`, which has those of each member.

    A share begins with what the member keeps.
    """
    placement = place_at_home(partition_counts, topics_of, ownership)
    for topic in placement.subscribers_of:
        _place_unassigned(placement, topic)

    balance(placement)
    while bring_home(placement):
        balance(placement)

    shares: dict[str, list[TopicPartition]] = {member_id: [] for member_id in topics_of}
    for partition in sorted(placement.holder_of, key=lambda p: (not placement.is_home(p), p)):
        shares[placement.holder_of[partition]].append(partition)
    return shares


def _place_unassigned(placement: Placement, topic: str) -> None:
    """Give each partition without a holder to the subscriber that holds least."""
    unassigned = [
        partition
        for partition in placement.partitions_of[topic]
        if partition not in placement.holder_of
    ]
    if not unassigned:
        return

    lightest = [
        (placement.loads[member_id], member_id) for member_id in placement.subscribers_of[topic]
    ]
    heapify(lightest)
    for partition in unassigned:
        load, member_id = lightest[0]
        placement.move(partition, member_id)
        heapreplace(lightest, (load + 1, member_id))
