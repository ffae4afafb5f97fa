"""The committed offsets of the groups in one partition of `__consumer_offsets`.

The state changes only by `replay`: the same call when the log is loaded and when a commit has been
replicated. It is therefore never ahead of the log, and two coordinators that read the same log
agree.

A value is kept as the bytes that it has in the log, and decoded when somebody asks for it: a
million are loaded, and few of them are ever read. Nor does the garbage collector track bytes;
walking a million objects would stop the event loop for 100 ms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct

import attrs

from offsets.records import (
    OFFSET_KEY_VERSIONS,
    OFFSET_VALUE_VERSION,
    CommittedOffset,
    OffsetKey,
    UnknownKey,
    decode_key,
    decode_value,
    offset_key_prefix,
    read_offset_value,
    times_of,
)
from protocol.topic_partition import TopicPartition

EncodedRecord = tuple[bytes, bytes | None]
"""Key and value as in the log; a value of None is a tombstone."""

_PARTITION = Struct(">i")
_PARTITION_AT = -_PARTITION.size
_BARE_VALUE_BYTES = 24
"""Size of a value without metadata, in the version that is written."""

Partitions = dict[bytes, bytes]
"""The last bytes of a key, which are the partition -> value."""


@attrs.define(eq=False)
class CommittedOffsets:
    """The newest committed offset of each (group, topic, partition).

    `_by_prefix` has the same partitions by the bytes before them in a key. A key that begins with
    such a prefix, and has four bytes more, needs no decoding. `skipped` counts records of kinds
    that are not known.
    """

    skipped: int = 0
    # Group -> topic -> partitions. Both levels exist only while they hold an offset.
    _groups: dict[str, dict[str, Partitions]] = attrs.field(factory=dict)
    _by_prefix: dict[bytes, Partitions] = attrs.field(factory=dict)

    def replay(self, records: Iterable[EncodedRecord]) -> list[EncodedRecord]:
        """Apply records in log order. Return those that are not of an offset.

        Raises RecordError at a record that is malformed, or whose value has an unknown version.
        """
        other_records: list[EncodedRecord] = []
        find = self._by_prefix.get

        for key, value in records:
            # The common case: a known prefix, and a value of the usual version and size.
            partitions = find(key[:_PARTITION_AT])
            if (
                partitions is None
                or value is None
                or len(value) != _BARE_VALUE_BYTES
                or value[1] != OFFSET_VALUE_VERSION
                or value[0] | value[14] | value[15]  # high byte of the version; length of metadata
            ):
                # A tombstone, metadata, an old version, the first offset of a prefix, or no offset.
                if not self._replay_decoded(key, value):
                    other_records.append((key, value))
            else:
                partitions[key[_PARTITION_AT:]] = value
        return other_records

    def fetch(self, group: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the offset that `group` has committed for one partition; None if there is none."""
        value = self._groups.get(group, {}).get(topic, {}).get(_PARTITION.pack(partition))
        return None if value is None else read_offset_value(value)

    def value(self, key: OffsetKey) -> bytes | None:
        """Return the value under `key`, as in the log."""
        group, topic, partition = key
        return self._groups.get(group, {}).get(topic, {}).get(_PARTITION.pack(partition))

    def of_group(self, group: str) -> dict[str, dict[int, CommittedOffset]]:
        """Return all that `group` has committed: topic -> partition -> offset."""
        return {
            topic: {
                _PARTITION.unpack(partition)[0]: read_offset_value(value)
                for partition, value in partitions.items()
            }
            for topic, partitions in self._groups.get(group, {}).items()
        }

    def values_of(self, group: str) -> Iterator[tuple[str, int, bytes]]:
        """Yield topic, partition and value, as in the log, of all that `group` has committed."""
        for topic, partitions in self._groups.get(group, {}).items():
            for partition, value in partitions.items():
                yield topic, _PARTITION.unpack(partition)[0], value

    def keys_of(self, group: str) -> Iterator[OffsetKey]:
        """Yield the keys of all that `group` has committed.

        The group may change between two of them: each key that stays is there once.
        """
        topics = self._groups.get(group, {})
        for topic in list(topics):
            for partition in list(topics.get(topic, ())):
                yield OffsetKey(group, topic, _PARTITION.unpack(partition)[0])

    def slices_of(
        self, partitions: Iterable[TopicPartition], most: int
    ) -> Iterator[list[OffsetKey]]:
        """Yield the keys of all offsets of these partitions, a slice at a time.

        For each slice at most `most` groups and partitions are examined, so it may be empty. A
        change between two slices is visible to the later ones.
        """
        # By topic, because few of them are deleted and a group has few.
        partitions_of: dict[str, list[int]] = {}
        for topic, partition in partitions:
            partitions_of.setdefault(topic, []).append(partition)

        keys: list[OffsetKey] = []
        num_examined = 0
        # A copy: groups come and go between two slices.
        for group in list(self._groups):
            topics = self._groups.get(group, {})
            for topic in sorted(topics.keys() & partitions_of.keys()):
                for partition in partitions_of[topic]:
                    # Look the topic up each time: it may have gone since the last slice.
                    if _PARTITION.pack(partition) in topics.get(topic, {}):
                        keys.append(OffsetKey(group, topic, partition))
                    num_examined += 1
                    if num_examined >= most:
                        yield keys
                        keys = []
                        num_examined = 0

            # A group without any of the topics counts too.
            num_examined += 1
            if num_examined >= most:
                yield keys
                keys = []
                num_examined = 0
        yield keys

    def slices_before(
        self, times_ms: Mapping[str, int], most: int
    ) -> Iterator[list[tuple[OffsetKey, bytes]]]:
        """Yield keys and values of offsets that were committed before the time of their topic.

        As in `slices_of` at most `most` groups and offsets are examined for each slice.
        """
        before: list[tuple[OffsetKey, bytes]] = []
        num_examined = 0
        # Copies: groups and offsets come and go between two slices.
        for group in list(self._groups):
            topics = self._groups.get(group, {})
            for topic in sorted(topics.keys() & times_ms.keys()):
                for key_end, value in list(topics.get(topic, {}).items()):
                    if times_of(value)[0] < times_ms[topic]:
                        before.append((OffsetKey(group, topic, _partition_of(key_end)), value))
                    num_examined += 1
                    if num_examined >= most:
                        yield before
                        before = []
                        num_examined = 0

            num_examined += 1
            if num_examined >= most:
                yield before
                before = []
                num_examined = 0
        yield before

    def groups(self) -> Collection[str]:
        """Return the groups that have an offset here."""
        return self._groups.keys()

    def topics(self) -> set[str]:
        """Return the topics of which there is an offset."""
        return {topic for topics in self._groups.values() for topic in topics}

    def partitions_of(self, wanted: Collection[str]) -> set[TopicPartition]:
        """Return the partitions of these topics of which there is an offset."""
        return {
            TopicPartition(topic, _PARTITION.unpack(key_end)[0])
            for topics in self._groups.values()
            for topic in topics.keys() & set(wanted)
            for key_end in topics[topic]
        }

    def count(self) -> int:
        """Return the number of offsets."""
        return sum(map(self.count_of, self._groups))

    def count_of(self, group: str) -> int:
        """Return the number of offsets of one group."""
        return sum(map(len, self._groups.get(group, {}).values()))

    def check(self) -> None:
        """Assert what holds after each step: no level is empty, and both maps share their dicts."""
        by_name = [partitions for topics in self._groups.values() for partitions in topics.values()]
        assert all(self._groups.values())
        assert all(by_name)
        by_prefix = self._by_prefix.values()
        assert {id(partitions) for partitions in by_prefix} <= {id(p) for p in by_name}

    def _replay_decoded(self, key: bytes, value: bytes | None) -> bool:
        """Apply one record if it is of an offset. Return whether it is."""
        try:
            decoded = decode_key(key)
        except UnknownKey:
            # A newer broker wrote it, and not for us (KIP-915).
            self.skipped += 1
            return True
        if not isinstance(decoded, OffsetKey):
            return False
        group, topic, partition = decoded
        key_end = _PARTITION.pack(partition)
        if value is None:
            self._delete(group, topic, key_end)
            return True

        # Raise for a malformed value now, and not when somebody reads it.
        decode_value(decoded, value)

        # Prefixes of key versions 0 and 1 share the partitions: the later record counts.
        partitions = self._groups.setdefault(group, {}).setdefault(topic, {})
        self._by_prefix[key[: len(offset_key_prefix(group, topic))]] = partitions
        partitions[key_end] = value
        return True

    def _delete(self, group: str, topic: str, key_end: bytes) -> None:
        topics = self._groups.get(group, {})
        partitions = topics.get(topic, {})
        partitions.pop(key_end, None)

        # Delete the levels that are empty now.
        if topic in topics and not partitions:
            del topics[topic]
            for version in OFFSET_KEY_VERSIONS:
                self._by_prefix.pop(offset_key_prefix(group, topic, version), None)
        if group in self._groups and not topics:
            del self._groups[group]


def _partition_of(key_end: bytes) -> int:
    partition: int = _PARTITION.unpack(key_end)[0]
    return partition
