"""What the groups of one partition of `__consumer_offsets` have committed.

The state has one way to change, `replay`: the same call when the log is loaded and when a commit
has been replicated. It is therefore never ahead of the log, and two coordinators that read the
same log agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import attrs

from offsets.records import CommittedOffset, OffsetKey
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class CommittedOffsets:
    """The newest committed offset of each (group, topic, partition).

    Offsets are kept as bare tuples: of those the garbage collector stops keeping track, of a
    NamedTuple it never does, and walking a million of them stops the event loop for 100 ms.
    """

    _groups: dict[str, dict[str, dict[int, tuple[Any, ...]]]] = attrs.field(factory=dict)

    def replay(self, key: OffsetKey, value: CommittedOffset | None) -> None:
        """Apply one record, in log order. None, a tombstone, removes what is there."""
        group, topic, partition = key
        if value is None:
            self._remove(group, topic, partition)
            return
        topics = self._groups.get(group)
        if topics is None:
            topics = self._groups[group] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        partitions[partition] = tuple(value)

    def fetch(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """What `group` has committed for one partition."""
        kept = self._groups.get(group, {}).get(topic, {}).get(partition)
        return None if kept is None else CommittedOffset._make(kept)

    def of_group(self, group: str) -> dict[str, dict[int, CommittedOffset]]:
        """All that `group` has committed: topic -> partition -> offset."""
        return {
            topic: {p: CommittedOffset._make(kept) for p, kept in partitions.items()}
            for topic, partitions in self._groups.get(group, {}).items()
        }

    def keys_of(self, partitions: Iterable[TopicPartition]) -> list[OffsetKey]:
        """Whose offsets there are for any of these."""
        wanted = set(partitions)
        return [
            OffsetKey(group, topic, partition)
            for group, topics in self._groups.items()
            for topic in topics.keys() & {each.topic for each in wanted}
            for partition in topics[topic]
            if (topic, partition) in wanted
        ]

    def groups(self) -> Collection[str]:
        """The groups that have an offset here."""
        return self._groups.keys()

    def count(self) -> int:
        """How many offsets are kept."""
        return sum(len(p) for topics in self._groups.values() for p in topics.values())

    def _remove(self, group: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if topic in topics and not partitions:
            del topics[topic]
        if group in self._groups and not topics:
            del self._groups[group]
