"""What the groups of one partition of `__consumer_offsets` have committed.

The state has one way to change, `replay`: the same call when the log is loaded and when a commit
has been replicated. It is therefore never ahead of the log, and two coordinators that read the
same log agree.

A value is kept as the bytes it has in the log, and decoded when it is asked for: a million are
loaded, and few of them are ever looked at. Of bytes the garbage collector keeps no track either;
walking a million objects would stop the event loop for 100 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from struct import Struct

import attrs

from offsets.records import (
    OFFSET_KEY_VERSIONS,
    OFFSET_VALUE_VERSION,
    CommittedOffset,
    OffsetKey,
    decode_key,
    decode_value,
    offset_key_prefix,
    read_offset_value,
)
from protocol.topic_partition import TopicPartition

EncodedRecord = tuple[bytes, bytes | None]
"""Key and value as they are in the log; None is a tombstone."""

_PARTITION = Struct(">i")
_PARTITION_AT = -_PARTITION.size
_BARE_VALUE_BYTES = 24
"""What a value of the version written comes to without a note."""

Partitions = dict[bytes, bytes]
"""Partition, as it stands at the end of a key -> value."""


@attrs.define(eq=False)
class CommittedOffsets:
    """The newest committed offset of each (group, topic, partition).

    `_by_prefix` has the same partitions by what stands before them in a key: a key that begins so,
    and has four bytes more, needs no decoding.
    """

    _groups: dict[str, dict[str, Partitions]] = attrs.field(factory=dict)
    _by_prefix: dict[bytes, Partitions] = attrs.field(factory=dict)

    def replay(self, records: Iterable[EncodedRecord]) -> list[EncodedRecord]:
        """Apply records, in log order; those that are of no offset are returned.

        Raises RecordError at what is malformed or of an unknown version.
        """
        others: list[EncodedRecord] = []
        known = self._by_prefix.get
        for key, value in records:
            partitions = known(key[:_PARTITION_AT])
            if (
                partitions is None
                or value is None
                or len(value) != _BARE_VALUE_BYTES
                or value[1] != OFFSET_VALUE_VERSION
                or value[0] | value[14] | value[15]  # of the version, and of the note's length
            ):
                if not self._replay_decoded(key, value):
                    others.append((key, value))
            else:
                partitions[key[_PARTITION_AT:]] = value
        return others

    def fetch(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """What `group` has committed for one partition."""
        kept = self._groups.get(group, {}).get(topic, {}).get(_PARTITION.pack(partition))
        return None if kept is None else read_offset_value(kept)

    def value(self, key: OffsetKey) -> bytes | None:
        """The value under `key`, as it is in the log."""
        group, topic, partition = key
        return self._groups.get(group, {}).get(topic, {}).get(_PARTITION.pack(partition))

    def of_group(self, group: str) -> dict[str, dict[int, CommittedOffset]]:
        """All that `group` has committed: topic -> partition -> offset."""
        return {
            topic: {
                _PARTITION.unpack(partition)[0]: read_offset_value(kept)
                for partition, kept in partitions.items()
            }
            for topic, partitions in self._groups.get(group, {}).items()
        }

    def values_of(self, group: str) -> Iterator[tuple[str, int, bytes]]:
        """Topic, partition and value, as it is in the log, of all that `group` has committed."""
        for topic, partitions in self._groups.get(group, {}).items():
            for partition, value in partitions.items():
                yield topic, _PARTITION.unpack(partition)[0], value

    def slices_of(
        self, partitions: Iterable[TopicPartition], most: int
    ) -> Iterator[list[OffsetKey]]:
        """Whose offsets there are for any of these, found a slice at a time.

        For each slice up to `most` groups and partitions are looked at, so it may be empty. What
        changes between two slices is seen by those that come after.
        """
        wanted: dict[str, list[int]] = {}
        for topic, partition in partitions:
            wanted.setdefault(topic, []).append(partition)

        found: list[OffsetKey] = []
        looked_at = 0
        for group in list(self._groups):
            topics = self._groups.get(group, {})
            for topic in sorted(topics.keys() & wanted.keys()):
                for partition in wanted[topic]:
                    if _PARTITION.pack(partition) in topics.get(topic, {}):
                        found.append(OffsetKey(group, topic, partition))
                    looked_at += 1
                    if looked_at >= most:
                        yield found
                        found, looked_at = [], 0
            looked_at += 1
            if looked_at >= most:
                yield found
                found, looked_at = [], 0
        yield found

    def groups(self) -> Collection[str]:
        """The groups that have an offset here."""
        return self._groups.keys()

    def count(self) -> int:
        """How many offsets are kept."""
        return sum(map(self.count_of, self._groups))

    def count_of(self, group: str) -> int:
        """How many are kept of one group."""
        return sum(map(len, self._groups.get(group, {}).values()))

    def check(self) -> None:
        """Assert what must hold after each step: no empty level, and one dict by both ways."""
        by_name = [partitions for topics in self._groups.values() for partitions in topics.values()]
        assert all(self._groups.values())
        assert all(by_name)
        assert {id(each) for each in self._by_prefix.values()} <= {id(each) for each in by_name}

    def _replay_decoded(self, key: bytes, value: bytes | None) -> bool:
        """Apply one record, if it is of an offset."""
        decoded = decode_key(key)
        if not isinstance(decoded, OffsetKey):
            return False
        group, topic, partition = decoded
        at = _PARTITION.pack(partition)
        if value is None:
            self._remove(group, topic, at)
            return True
        decode_value(decoded, value)  # so that what is malformed is found now, and not when asked
        partitions = self._groups.setdefault(group, {}).setdefault(topic, {})
        self._by_prefix[key[: len(offset_key_prefix(group, topic))]] = partitions
        partitions[at] = value
        return True

    def _remove(self, group: str, topic: str, partition: bytes) -> None:
        topics = self._groups.get(group, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if topic in topics and not partitions:
            del topics[topic]
            for version in OFFSET_KEY_VERSIONS:
                self._by_prefix.pop(offset_key_prefix(group, topic, version), None)
        if group in self._groups and not topics:
            del self._groups[group]
