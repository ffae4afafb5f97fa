"""Find partitions of what the members of a group subscribe to that none of them owns.

Members at a coordinator hear of partitions that were added to a topic when they next read its
metadata (`metadata.max.age.ms`). Until then nobody consumes these.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple, Self

from clients.cluster import Cluster
from protocol.topic_partition import TopicPartition


class Consumed(NamedTuple):
    """What the members of a group subscribe to, and own."""

    topics: frozenset[str]
    owned: Mapping[str, Set[int]]
    """Topic -> the numbers of its partitions."""
    partitions: frozenset[TopicPartition]
    """What is owned, as partitions."""

    @classmethod
    def of(cls, topics: Iterable[str], owned: Iterable[TopicPartition]) -> Self:
        """Build it of the topics of subscriptions; what is owned is subscribed to as well."""
        partitions = frozenset(owned)
        numbers = defaultdict[str, set[int]](set)
        for partition in partitions:
            numbers[partition.topic].add(partition.partition)
        return cls(frozenset(topics).union(numbers), numbers, partitions)


async def find_unowned(
    cluster: Cluster, groups: Mapping[str, Consumed]
) -> dict[str, frozenset[TopicPartition]]:
    """Return the partitions that nobody owns of each group that has such. Raises KgroupError."""
    # Where nothing at all is owned, assignments cannot be read, or are not made yet.
    groups = {group_id: consumed for group_id, consumed in groups.items() if consumed.owned}
    if not groups:
        return {}
    topics = frozenset[str]().union(*(consumed.topics for consumed in groups.values()))

    await cluster.refresh_unless_just_read(topics)
    known = cluster.view.topics
    unowned = {
        group_id: frozenset(
            TopicPartition(topic, number)
            for topic in consumed.topics
            for number in known.get(topic, {}).keys() - consumed.owned.get(topic, frozenset())
        )
        for group_id, consumed in groups.items()
    }
    return {group_id: partitions for group_id, partitions in unowned.items() if partitions}
