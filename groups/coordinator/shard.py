"""The groups that one partition of `__consumer_offsets` keeps.

Stored state changes only in `replay` and `end_transaction`. Beside it the shard keeps the keys in
flight, and the sweeps over offsets of deleted partitions. These are lost with the leader.

Offsets committed in a transaction (KIP-98) are staged until the marker that ends it. They count
from where they were written: an offset that was committed behind them stays, whether plainly or in
another transaction (KAFKA-5247), and one that was deleted behind them stays deleted. Kafka 2.8.2
forgets the latter when another broker loads the log; later releases do not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from groups.coordinator.config import GroupConfig
from groups.coordinator.events import TransactionEnded
from groups.coordinator.group_records import GroupRecords
from groups.coordinator.membership.group import Group
from groups.runtime.effects import RequestId
from groups.runtime.shard import NO_PRODUCER, EncodedRecord, MalformedRecord
from offsets.committed import CommittedOffsets
from offsets.records import (
    LAST_VERSIONS,
    GroupKey,
    GroupMetadata,
    Key,
    OffsetKey,
    Record,
    RecordError,
    ValueVersions,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    times_of,
)
from protocol.errors import ErrorCode
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


@frozen
class _StagedRecord:
    """The value of a record of an open transaction. `number` is its place among all staged ones."""

    number: int
    value: bytes | None


@attrs.define(eq=False)
class Deletion:
    """Many offsets of a group that are being deleted a slice at a time.

    - `spared`: keys that were committed since it began: they stay.
    - `begun`, `ended`: numbers of appends.
    - `is_over`: all slices are decided.
    """

    group_id: str
    is_whole: bool
    spared: set[OffsetKey] = attrs.field(factory=set)
    refused: dict[TopicPartition, ErrorCode] = attrs.field(factory=dict)
    begun: int = 0
    ended: int = 0
    is_over: bool = False


@attrs.define(eq=False)
class GroupShard:
    """Offsets of all its groups, and the last record of those that have, or had, members.

    - `versions`: versions in which values are written.
    - `write_timeout_ms`: time after which members wait no longer for a record of their group.
    - `live`: groups that have members, or are about to. It is not stored.
    - `in_flight`: key -> number of appends in flight with it.
    - `deleting`: partitions whose offsets are being deleted a slice at a time, one set a sweep.
    - `recommitted`: keys committed for these partitions since then: their topic was created again.
    - `deletions`: those on request that take several slices, by the id of the request.
    - `stale`: key -> value of offsets whose deletion could not be written. They are deleted later
      if they are still the same.
    - `hidden`: offsets of earlier topics, left out when the log was loaded. The log still has them.
    """

    versions: ValueVersions = LAST_VERSIONS
    config: GroupConfig = attrs.field(factory=GroupConfig)
    write_timeout_ms: int = 5000
    offsets: CommittedOffsets = attrs.field(factory=CommittedOffsets)
    groups: GroupRecords = attrs.field(factory=GroupRecords)
    live: dict[str, Group] = attrs.field(factory=dict)
    in_flight: dict[Key, int] = attrs.field(factory=dict)
    deleting: list[frozenset[TopicPartition]] = attrs.field(factory=list)
    recommitted: set[OffsetKey] = attrs.field(factory=set)
    deletions: dict[RequestId, Deletion] = attrs.field(factory=dict)
    stale: dict[OffsetKey, bytes] = attrs.field(factory=dict)
    hidden: dict[OffsetKey, None] = attrs.field(factory=dict)

    # Group -> its keys in flight.
    _in_flight_of: dict[str, set[Key]] = attrs.field(factory=dict)
    # Producer id -> the latest record of each key that its open transaction has staged; and key ->
    # the producers that have staged it; and group -> the keys of its offsets that any has staged.
    _open_transactions: dict[int, dict[bytes, _StagedRecord]] = attrs.field(factory=dict)
    _stagers: dict[bytes, set[int]] = attrs.field(factory=dict)
    _staged_offsets: dict[str, set[OffsetKey]] = attrs.field(factory=dict)
    _staged_count: int = 0

    # ---- records

    def encode(self, records: Sequence[Record]) -> list[EncodedRecord]:
        """Encode the records of an append."""
        versions = self.versions
        encoded = [(encode_key(key), encode_value(value, versions)) for key, value in records]
        for (_, value), (_, data) in zip(records, encoded, strict=True):
            if isinstance(value, GroupMetadata) and data is not None:
                self.groups.note_encoded(value, data)
        return encoded

    def replay(self, records: Iterable[EncodedRecord], producer_id: int = NO_PRODUCER) -> None:
        """Apply records, as they are in the log; stage those of an open transaction.

        Raises MalformedRecord, and is then of no use.
        """
        try:
            if producer_id != NO_PRODUCER:
                self._stage(producer_id, records)
                return

            # Plain commits, and deletions, outdate those that are staged.
            if self._stagers:
                # A list, because they are gone through twice.
                records = list(records)
                for key, _ in records:
                    self._unstage(key, self._staged_count)
            self._apply(records)
        except RecordError as error:
            raise MalformedRecord(str(error)) from error

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Apply the staged records of a producer, or drop them."""
        staged = self._open_transactions.pop(producer_id, {})
        for key in staged:
            self._note_unstaged(key, producer_id)
        if not is_committed:
            return

        # Its commits outdate those that other transactions staged before them.
        for key, record in staged.items():
            self._unstage(key, record.number)
        self._apply([(key, record.value) for key, record in staged.items()])

    def _apply(self, records: Iterable[EncodedRecord]) -> None:
        for key, value in self.offsets.replay(records):
            self._replay_group(key, value)

    def _replay_group(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_key(key)
        assert isinstance(decoded, GroupKey)
        self.groups.replay(decoded, value)

    def _stage(self, producer_id: int, records: Iterable[EncodedRecord]) -> None:
        staged = self._open_transactions.setdefault(producer_id, {})
        for key, value in records:
            decoded = decode_key(key)
            decode_value(decoded, value)  # a malformed record fails now
            staged[key] = _StagedRecord(self._staged_count, value)
            self._stagers.setdefault(key, set()).add(producer_id)
            if isinstance(decoded, OffsetKey):
                self._staged_offsets.setdefault(decoded.group, set()).add(decoded)
            self._staged_count += 1

    def _unstage(self, key: bytes, end: int) -> None:
        """Remove the records of this key that are staged with a number below `end`."""
        for producer_id in list(self._stagers.get(key, ())):
            staged = self._open_transactions[producer_id]
            if staged[key].number < end:
                del staged[key]
                self._note_unstaged(key, producer_id)

    def _note_unstaged(self, key: bytes, producer_id: int) -> None:
        stagers = self._stagers[key]
        stagers.remove(producer_id)
        if stagers:
            return
        del self._stagers[key]

        decoded = decode_key(key)
        if isinstance(decoded, OffsetKey):
            of_group = self._staged_offsets[decoded.group]
            of_group.remove(decoded)
            if not of_group:
                del self._staged_offsets[decoded.group]

    # ---- offsets of earlier topics, while the log is loaded

    def topics(self) -> set[str]:
        """Return the topics of which an offset is committed, or in an open transaction."""
        staged = (key.topic for keys in self._staged_offsets.values() for key in keys)
        return self.offsets.topics().union(staged)

    def staged_before(self, times_ms: Mapping[str, int]) -> list[OffsetKey]:
        """Return the offsets that open transactions staged before the time of their topic."""
        before = []
        for staged in self._open_transactions.values():
            for encoded, record in staged.items():
                key = decode_key(encoded)
                if not isinstance(key, OffsetKey) or record.value is None:
                    continue
                if times_of(record.value)[0] < times_ms.get(key.topic, 0):
                    before.append(key)
        return before

    def hide(self, keys: Iterable[OffsetKey]) -> None:
        """Leave offsets out, as if their tombstones were in the log already."""
        for key in keys:
            self.replay([(encode_key(key), None)])
            self.hidden[key] = None

    # ---- keys in flight

    def begin_write(self, records: Sequence[Record]) -> None:
        """Note that records are in flight."""
        for key, value in records:
            self.in_flight[key] = self.in_flight.get(key, 0) + 1
            self._in_flight_of.setdefault(key.group, set()).add(key)
            if value is not None and isinstance(key, OffsetKey):
                if self.deleting:
                    self._spare(key)
                # What is committed behind a deletion that goes on stays (fault groups-8).
                for deletion in self.deletions.values():
                    if deletion.group_id == key.group:
                        deletion.spared.add(key)

    def end_write(self, records: Sequence[Record]) -> None:
        """Note that records are no longer in flight."""
        for key, _ in records:
            left = self.in_flight[key] - 1
            if left:
                self.in_flight[key] = left
            else:
                del self.in_flight[key]
                of_group = self._in_flight_of[key.group]
                of_group.remove(key)
                if not of_group:
                    del self._in_flight_of[key.group]

    def _spare(self, key: OffsetKey) -> None:
        """Keep a commit for a topic that was created again while the old one is swept."""
        if self.is_deleting(key):
            self.recommitted.add(key)

    def is_deleting(self, key: OffsetKey) -> bool:
        """Return whether a sweep deletes the offsets of the key's partition."""
        topic_partition = TopicPartition(key.topic, key.partition)
        return any(topic_partition in partitions for partitions in self.deleting)

    def offsets_in_flight(self, group_id: str | None = None) -> set[OffsetKey]:
        """Return the keys of offsets, and of their tombstones, in flight; of one group if given."""
        keys: Collection[Key] = self.in_flight.keys()
        if group_id is not None:
            # To go through all keys for each group would cost their square (fault groups-8).
            keys = self._in_flight_of.get(group_id, ())
        return {
            key
            for key in keys
            if isinstance(key, OffsetKey) and (group_id is None or key.group == group_id)
        }

    def has_in_flight(self, group_id: str) -> bool:
        """Return whether any record of a group is in flight."""
        return group_id in self._in_flight_of

    def partitions_of(self, group_id: str) -> Iterator[TopicPartition]:
        """Yield the partitions of all offsets of a group: in flight, in transactions, committed.

        The group may change between two of them.
        """
        for key in self.offsets_in_flight(group_id) | self.staged_offsets(group_id):
            yield TopicPartition(key.topic, key.partition)
        for key in self.offsets.keys_of(group_id):
            yield TopicPartition(key.topic, key.partition)

    def staged_offsets(self, group_id: str | None = None) -> set[OffsetKey]:
        """Return the keys of offsets in open transactions; of one group if given."""
        if group_id is None:
            return set().union(*self._staged_offsets.values())
        return set(self._staged_offsets.get(group_id, ()))

    def count_staged(self, producer_id: int) -> int:
        """Return how many records the open transaction of a producer has staged."""
        return len(self._open_transactions.get(producer_id, ()))

    def unstable_offsets(self) -> Iterator[OffsetKey]:
        """Yield the keys of offsets in flight, and in open transactions, of all groups."""
        yield from self.offsets_in_flight()
        for keys in self._staged_offsets.values():
            yield from keys

    def has_staged(self, group_id: str) -> bool:
        """Return whether an open transaction has offsets of a group."""
        return group_id in self._staged_offsets

    def is_unstable(self, key: OffsetKey) -> bool:
        """Return whether an offset is about to change: by a commit, or the end of a transaction."""
        return key in self.in_flight or key in self._staged_offsets.get(key.group, ())

    # ---- groups with members

    def live_group(self, group_id: str) -> Group | None:
        """Return a group that has members, or is about to; None if it is empty or unknown."""
        group = self.live.get(group_id)
        if group is None and self.groups.has_members(group_id):
            group = self.live[group_id] = Group.of_record(group_id, self.groups[group_id])
            self.groups.shed(group_id)
        return group

    def begin_group(self, group_id: str) -> Group:
        """Return a group that gets its first member, in the generation after its last one."""
        assert group_id not in self.live, "a group is there once"
        record = self.groups.get(group_id)
        group = Group(group_id) if record is None else Group.of_record(group_id, record)
        self.live[group_id] = group
        return group

    def release_group(self, group_id: str) -> None:
        """Keep no more of a group than its record, if it is empty and nothing is in flight."""
        group = self.live.get(group_id)
        is_recorded = not self.groups.has_members(group_id)
        is_idle = group is not None and group.is_idle
        if is_idle and is_recorded and GroupKey(group_id) not in self.in_flight:
            del self.live[group_id]

    # ---- questions

    def knows(self, group_id: str) -> bool:
        """Return whether anything is kept of the group."""
        return group_id in self.groups or group_id in self.live or group_id in self.offsets.groups()

    def describe(self) -> str:
        """Describe the shard: "12 offsets of 3 groups"."""
        groups = self.groups.keys() | self.offsets.groups()
        described = f"{self.offsets.count()} offsets of {len(groups)} groups"
        if self.offsets.skipped:
            described += f" (without {self.offsets.skipped} records of newer brokers' kinds)"
        return described

    def name(self, event: Any) -> str:
        """Name the group of an event, or the producer of a transaction."""
        if isinstance(event, TransactionEnded):
            return f"producer {event.producer_id}"
        return f"group {event.group_id}"

    def check(self, unfinished: Sequence[Sequence[Record]]) -> None:
        """Assert what must hold between two steps. `unfinished`: records of appends in flight."""
        in_flight = Counter(key for records in unfinished for key, _ in records)
        assert self.in_flight == in_flight, "the keys in flight are not those of the appends"
        of_groups = {key for keys in self._in_flight_of.values() for key in keys}
        assert of_groups == self.in_flight.keys(), "the keys of all groups are those in flight"
        assert all(self._in_flight_of.values()), "a group without keys in flight has no entry"

        # Sweeps over deleted partitions.
        assert all(self.is_deleting(key) for key in self.recommitted), "spared from no sweep"
        assert all(self.stale.values()), "an offset to be deleted later has a value"

        # Transactions. A staged offset becomes visible only with its marker.
        stagers = Counter(key for staged in self._open_transactions.values() for key in staged)
        counts = {key: len(producers) for key, producers in self._stagers.items()}
        assert stagers == counts, "the stagers of a key are the transactions that have it"
        offsets = {key for key in map(decode_key, self._stagers) if isinstance(key, OffsetKey)}
        assert self.staged_offsets() == offsets, "the offsets of groups are those of all stagers"
        for producer_id, staged in self._open_transactions.items():
            assert producer_id != NO_PRODUCER, "a transaction has a producer"
            for key, record in staged.items():
                assert producer_id in self._stagers[key], "it has staged what its transaction has"
                decoded = decode_key(key)
                if record.value is not None and isinstance(decoded, OffsetKey):
                    assert self.offsets.value(decoded) is not record.value, f"{decoded} is staged"

        # Members.
        for group_id, group in self.live.items():
            assert group.group_id == group_id
            group.check()

        self.offsets.check()
