"""Owners of partitions before an assignment, settled from what the members claim.

Claims may disagree: a member that missed a rebalance still claims what others have got since. The
claim of the highest generation counts, for each partition by itself (KAFKA-14639), so that a late
member keeps what nobody else claims. If several members claim a partition in the same, highest
generation, it is contested, and nobody keeps it.

Java settles claims one by one, in the order of a hash map. There a partition stays contested that
two members of an older generation claim, if it meets them before the one of the newest generation;
here the newest has it in any order.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from groups.assignors.claims import Claim
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class Ownership:
    """The owner of each partition that has one.

    `previous_owner_of` has a member that claims the partition with an older generation: the owner
    before the present one.
    """

    owner_of: dict[TopicPartition, str] = attrs.field(factory=dict)
    previous_owner_of: dict[TopicPartition, str] = attrs.field(factory=dict)
    contested: set[TopicPartition] = attrs.field(factory=set)

    def must_release_first(self, partition: TopicPartition, member_id: str) -> bool:
        """Return whether another member than `member_id` has to release the partition."""
        return partition in self.contested or self.owner_of.get(partition, member_id) != member_id


def settle_claims(partition_counts: Mapping[str, int], claims: Mapping[str, Claim]) -> Ownership:
    """Say who owns what; claims of partitions that do not exist are ignored."""
    ownership = Ownership()
    owner_of = ownership.owner_of

    for member_id, claim in claims.items():
        # Corrupt user data may have a partition twice.
        for partition in dict.fromkeys(claim.partitions):
            if not 0 <= partition.partition < partition_counts.get(partition.topic, 0):
                continue
            if partition in owner_of:
                _settle(ownership, partition, member_id, claims)
            else:
                owner_of[partition] = member_id

    # Up to here one of those who contest a partition stood for all of them.
    for partition in ownership.contested:
        del owner_of[partition]
    return ownership


def _settle(
    ownership: Ownership, partition: TopicPartition, rival: str, claims: Mapping[str, Claim]
) -> None:
    """Decide between the owner of a partition and another member that claims it."""
    owner = ownership.owner_of[partition]
    generation_id = claims[owner].generation_id
    rivals_generation_id = claims[rival].generation_id

    if rivals_generation_id == generation_id:
        ownership.contested.add(partition)
    elif rivals_generation_id > generation_id:
        ownership.contested.discard(partition)
        ownership.owner_of[partition] = rival
        ownership.previous_owner_of[partition] = owner
    else:
        _remember_previous_owner(ownership, partition, rival, claims)


def _remember_previous_owner(
    ownership: Ownership, partition: TopicPartition, member_id: str, claims: Mapping[str, Claim]
) -> None:
    previous = ownership.previous_owner_of.get(partition)
    if previous is None or claims[member_id].generation_id > claims[previous].generation_id:
        ownership.previous_owner_of[partition] = member_id
