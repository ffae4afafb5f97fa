"""An assignor for the pair: even, sticky, and cooperative where members say what they own."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.consumer_protocol import Assignment, Subscription
from protocol.topic_partition import TopicPartition

TOPIC = "t"


def share_out(members: Mapping[str, Subscription], partitions: int) -> dict[str, Assignment]:
    """Share out evenly, each keeping what it has; leave out what another one still owns."""
    everything = [TopicPartition(TOPIC, number) for number in range(partitions)]
    owners = {p: member for member, s in members.items() for p in s.owned_partitions}
    least, extra = divmod(partitions, len(members))
    given: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for partition in everything:
        owner = owners.get(partition)
        if owner is None:
            continue
        # So many members have one more than the others.
        if len(given[owner]) < least:
            given[owner].append(partition)
        elif len(given[owner]) == least and extra:
            given[owner].append(partition)
            extra -= 1

    kept = {p for mine in given.values() for p in mine}
    for partition in everything:
        if partition not in kept:
            member = min(given, key=lambda member: len(given[member]))
            given[member].append(partition)
    return {
        member: Assignment(tuple(p for p in mine if owners.get(p, member) == member))
        for member, mine in given.items()
    }
