"""What the groups of one partition of `__consumer_offsets` have committed.

The state has one way to change, `replay`: the same call when the log is loaded and when a commit
has been replicated. It is therefore never ahead of the log, and two coordinators that read the
same log agree.

group -> topic -> partition -> offset, in plain dictionaries and tuples: a million offsets are
about 300 MB less than with an object per (group, topic, partition).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from offsets.records import CommittedOffset, OffsetKey

GroupOffsets = Mapping[str, Mapping[int, CommittedOffset]]
_NOTHING: GroupOffsets = {}


@attrs.define(eq=False)
class CommittedOffsets:
    """The newest committed offset of each (group, topic, partition)."""

    _groups: dict[str, dict[str, dict[int, CommittedOffset]]] = attrs.field(factory=dict)

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
        partitions[partition] = value

    def of_group(self, group: str) -> GroupOffsets:
        """All that `group` has committed: topic -> partition -> offset. Not to be changed."""
        return self._groups.get(group, _NOTHING)

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
