"""Groups as the records of `__consumer_offsets` show them: commits with their times. Pure.

No request to a coordinator returns when an offset was committed. The records say it, and when one
of an old version expires. A commit in a transaction (KIP-98) counts from the marker that commits
it; one that is older than another commit of the same partition changes nothing (KAFKA-5247).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from struct import Struct
from typing import NamedTuple

import attrs

from clients.groups.topic_batches import batches_behind
from offsets.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    Key,
    OffsetKey,
    RecordError,
    Value,
    decode_key,
    decode_value,
)
from protocol.records.control_record import COMMIT, marker_type
from protocol.records.record_run import Row
from protocol.topic_partition import TopicPartition

_LENGTH = Struct(">h")
_GROUP_AT = 4
"""Start of the group in a key, behind the version and the length of the group."""


class RecordedOffset(NamedTuple):
    """A committed offset as it is in the log.

    `committed_at_ms` is the broker's time, and -1 where nothing says it. `expires_at_ms` is None
    unless the commit has an expiry of its own. `log_offset` is the place of the record.
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None
    log_offset: int
    commit_timestamp_ms: int = -1
    """What the committer calls the time: in OffsetCommit 1 its own clock's, in any unit. From here
    coordinators count the retention of an offset, and nothing else does."""


class VisibleRecord(NamedTuple):
    """A record of a group that was asked for; a value of None is a tombstone."""

    log_offset: int
    written_ms: int
    key: Key
    value: Value | None


def time_of_commit(record: VisibleRecord, committed: CommittedOffset) -> int:
    """Return when a commit was made, by the clock of the broker that wrote it down.

    A record without a time, as the message format before 0.10 has it, has only the committer's.
    """
    at_ms = committed.commit_timestamp_ms

    # A client's clock, or unit, may be wrong, and others are judged by this time
    # (fault tool-F2).
    if record.written_ms >= 0:
        at_ms = record.written_ms
    return max(at_ms, NO_TIMESTAMP)


Sink = Callable[[int, VisibleRecord], None]
"""Takes the partition of the topic and a record, in the order in which records count."""


@attrs.define(eq=False)
class RecordedGroup:
    """A group: its last commit of each partition, and its last metadata."""

    offsets: dict[TopicPartition, RecordedOffset] = attrs.field(factory=dict)
    metadata: GroupMetadata | None = None
    metadata_written_ms: int = -1
    partition_id: int = -1
    """Partition of the topic that has its records."""


@attrs.define(eq=False)
class RecordedGroups:
    """The state of groups up to `positions`; it goes on where it stopped.

    Without `group_ids` it keeps all groups. Memory is that of the groups that are kept.
    """

    group_ids: frozenset[str] | None = None
    sink: Sink | None = None
    """Gets each record, for those who need more than the last one of each key."""
    groups: dict[str, RecordedGroup] = attrs.field(factory=dict)
    positions: dict[int, int] = attrs.field(factory=dict)
    """Partition of the topic -> the next offset to read."""
    errors: dict[int, Exception] = attrs.field(factory=dict)
    """Partitions of the topic that could not be read to their ends."""
    complete_since_ms: dict[int, int] = attrs.field(factory=dict)
    """Partition of the topic -> the time from which on no record is missing in it. Compaction
    leaves gaps between offsets, and retention begins a log behind offset 0."""
    newest_ms: int = NO_TIMESTAMP
    """The latest time at the end of a batch that was read since this was set to NO_TIMESTAMP."""
    _wanted: frozenset[bytes] | None = attrs.field(init=False)
    # (partition, producer id) -> records of an open transaction.
    _open: dict[tuple[int, int], list[VisibleRecord]] = attrs.field(factory=dict)
    # (partition, deleted offset) -> the offset of its tombstone, while any transaction is open.
    _deleted: dict[tuple[int, OffsetKey], int] = attrs.field(factory=dict)

    @_wanted.default
    def _encode_ids(self) -> frozenset[bytes] | None:
        return None if self.group_ids is None else frozenset(map(str.encode, self.group_ids))

    def of(self, group_id: str) -> RecordedGroup:
        """Return a group; an empty one if there is no record of it."""
        return self.groups.get(group_id) or RecordedGroup()

    def feed(self, partition_id: int, batches: bytes | memoryview) -> None:
        """Apply batches of a partition, from its position on. The last one may be incomplete.

        Raises CorruptRecord, CompressionUnavailable; the position is before that batch then.
        """
        for header, rows, start in batches_behind(self.positions, partition_id, batches):
            self._note_gaps(partition_id, rows, start, header.next_offset)
            if rows and rows[-1][0] >= start:
                self.newest_ms = max(self.newest_ms, rows[-1][1])

            if header.is_control:
                # Compaction may have left the batch and taken the marker.
                if rows:
                    is_committed = marker_type(rows[0][2] or b"") == COMMIT
                    self._end_transaction(partition_id, header.producer_id, is_committed)
                continue

            records = self._read(row[:4] for row in rows if row[0] >= start)
            if header.is_transactional:
                key = (partition_id, header.producer_id)
                self._open.setdefault(key, []).extend(records)
            else:
                self._apply(partition_id, records)

    def forget(self, partition_id: int) -> None:
        """Forget the groups of a partition: its log was made again, and is read from its start."""
        groups = [name for name, own in self.groups.items() if own.partition_id == partition_id]
        for group_id in groups:
            del self.groups[group_id]
        for key in [key for key in self._open if key[0] == partition_id]:
            del self._open[key]
        for place in [place for place in self._deleted if place[0] == partition_id]:
            del self._deleted[place]
        self.complete_since_ms.pop(partition_id, None)

    def _note_gaps(
        self, partition_id: int, rows: Sequence[Row], start: int, next_offset: int
    ) -> None:
        """Move the time from which on the partition is complete behind a gap in this batch."""
        if not rows:
            self.complete_since_ms.pop(partition_id, None)
            return
        has_gap = rows[0][0] > start or next_offset - rows[0][0] != len(rows)
        if has_gap or partition_id not in self.complete_since_ms:
            is_whole_log = not has_gap and rows[0][0] == 0
            self.complete_since_ms[partition_id] = 0 if is_whole_log else rows[-1][1]

    def _read(
        self, rows: Iterable[tuple[int, int, bytes | None, bytes | None]]
    ) -> list[VisibleRecord]:
        """Decode the records of the groups asked for. Other kinds, and malformed ones, are left."""
        records = []
        for log_offset, written_ms, key, value in rows:
            if key is None or not self._is_wanted(key):
                continue
            try:
                decoded = decode_key(key)
                records.append(
                    VisibleRecord(log_offset, written_ms, decoded, decode_value(decoded, value))
                )
            except RecordError:
                continue
        return records

    def _is_wanted(self, key: bytes) -> bool:
        if self._wanted is None:
            return True
        if len(key) < _GROUP_AT:
            return False
        (length,) = _LENGTH.unpack_from(key, _LENGTH.size)
        return key[_GROUP_AT : _GROUP_AT + length] in self._wanted

    def _end_transaction(self, partition_id: int, producer_id: int, is_committed: bool) -> None:
        records = self._open.pop((partition_id, producer_id), [])
        if is_committed:
            self._apply(partition_id, records)
        if not self._open:
            self._deleted.clear()

    def _apply(self, partition_id: int, records: Iterable[VisibleRecord]) -> None:
        for record in records:
            group = self.groups.get(record.key.group)
            if group is None:
                group = RecordedGroup(partition_id=partition_id)
                self.groups[record.key.group] = group

            if isinstance(record.key, OffsetKey):
                self._apply_offset(record, record.key, group)
            else:
                self._apply_metadata(record, record.key, group)
            if self.sink is not None:
                self.sink(partition_id, record)

    def _apply_offset(self, record: VisibleRecord, key: OffsetKey, group: RecordedGroup) -> None:
        partition = TopicPartition(key.topic, key.partition)
        committed = record.value
        if committed is None:
            group.offsets.pop(partition, None)
            self._delete_empty(key.group)
            if self._open:
                # The later record counts (fault strangers-78).
                self._deleted[group.partition_id, key] = record.log_offset
            return
        if self._deleted.get((group.partition_id, key), -1) > record.log_offset:
            self._delete_empty(key.group)
            return

        assert isinstance(committed, CommittedOffset)
        # A transaction that has just ended may have begun before a later commit.
        before = group.offsets.get(partition)
        if before is None or before.log_offset < record.log_offset:
            group.offsets[partition] = RecordedOffset(
                committed.offset,
                committed.leader_epoch,
                committed.metadata,
                time_of_commit(record, committed),
                committed.expire_timestamp_ms,
                record.log_offset,
                committed.commit_timestamp_ms,
            )

    def _apply_metadata(self, record: VisibleRecord, key: GroupKey, group: RecordedGroup) -> None:
        group.metadata = record.value if isinstance(record.value, GroupMetadata) else None
        group.metadata_written_ms = record.written_ms
        self._delete_empty(key.group)

    def _delete_empty(self, group_id: str) -> None:
        group = self.groups[group_id]
        if not group.offsets and group.metadata is None:
            del self.groups[group_id]
