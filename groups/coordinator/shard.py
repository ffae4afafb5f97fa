"""The groups that one partition of `__consumer_offsets` keeps.

What is stored changes in `replay` and `end_transaction` alone. Beside it the shard keeps what is in
flight, and which deletions of partitions are under way; that is gone with the leader.

Offsets committed in a transaction (KIP-98) are held back until the marker that ends it. They count
as of where they were written: what was committed plainly behind them stays (KAFKA-5247).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from groups.runtime.shard import NO_PRODUCER, EncodedRecord, MalformedRecord
from offsets.committed import CommittedOffsets
from offsets.records import (
    OFFSET_VALUE_VERSION,
    GroupKey,
    GroupMetadata,
    Key,
    OffsetKey,
    Record,
    RecordError,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class GroupShard:
    """Offsets of all its groups, and the last record of those that have, or had, members.

    Offsets are written as `value_version`. `in_flight`: keys that are written and not replayed yet,
    and in how many appends. `deleting`: partitions whose offsets are being deleted a slice at a
    time, and `recommitted`, the keys committed for them since: their topic was created again.
    `stale`: offsets whose deletion could not be written, to be deleted later if they are the same.
    """

    value_version: int = OFFSET_VALUE_VERSION
    offsets: CommittedOffsets = attrs.field(factory=CommittedOffsets)
    groups: dict[str, GroupMetadata] = attrs.field(factory=dict)
    in_flight: dict[Key, int] = attrs.field(factory=dict)
    deleting: list[frozenset[TopicPartition]] = attrs.field(factory=list)
    recommitted: set[OffsetKey] = attrs.field(factory=set)
    stale: dict[OffsetKey, bytes] = attrs.field(factory=dict)
    _open_transactions: dict[int, dict[bytes, bytes | None]] = attrs.field(factory=dict)

    # ---- records

    def encode(self, records: Sequence[Record]) -> list[EncodedRecord]:
        """Encode the records of an append."""
        version = self.value_version
        return [(encode_key(key), encode_value(value, version)) for key, value in records]

    def replay(self, records: Iterable[EncodedRecord], producer_id: int = NO_PRODUCER) -> None:
        """Apply records, as they are in the log; those of an open transaction wait for its end.

        Raises MalformedRecord, and is then of no use.
        """
        try:
            if producer_id != NO_PRODUCER:
                self._hold_back(producer_id, records)
                return

            if self._open_transactions:
                records = list(records)
                self._outdate(records)
            for key, value in self.offsets.replay(records):
                self._replay_group(key, value)
        except RecordError as error:
            raise MalformedRecord(str(error)) from error

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Apply what a producer's open transaction holds, or forget it."""
        held = self._open_transactions.pop(producer_id, {})
        if is_committed:
            self.replay(held.items())

    def _replay_group(self, key: bytes, value: bytes | None) -> None:
        decoded = decode_key(key)
        assert isinstance(decoded, GroupKey)
        metadata = decode_value(decoded, value)
        if metadata is None:
            self.groups.pop(decoded.group, None)
        else:
            assert isinstance(metadata, GroupMetadata)
            self.groups[decoded.group] = metadata

    def _hold_back(self, producer_id: int, records: Iterable[EncodedRecord]) -> None:
        held = self._open_transactions.setdefault(producer_id, {})
        for key, value in records:
            decode_value(decode_key(key), value)  # so that a malformed one is found now
            held[key] = value

    def _outdate(self, records: Iterable[EncodedRecord]) -> None:
        """Have open transactions give up keys that are committed plainly behind them."""
        for held in self._open_transactions.values():
            for key, value in records:
                if value is not None:
                    held.pop(key, None)

    # ---- what is in flight

    def begin_write(self, records: Sequence[Record]) -> None:
        """Take note that records are in flight."""
        for key, value in records:
            self.in_flight[key] = self.in_flight.get(key, 0) + 1
            if self.deleting and value is not None and isinstance(key, OffsetKey):
                self._spare(key)

    def end_write(self, records: Sequence[Record]) -> None:
        """Take note that records are not in flight any more."""
        for key, _ in records:
            left = self.in_flight[key] - 1
            if left:
                self.in_flight[key] = left
            else:
                del self.in_flight[key]

    def _spare(self, key: OffsetKey) -> None:
        """Keep what is committed for a topic that was created again while the old one goes."""
        topic_partition = TopicPartition(key.topic, key.partition)
        if any(topic_partition in partitions for partitions in self.deleting):
            self.recommitted.add(key)

    def offsets_in_flight(self, group_id: str | None = None) -> set[OffsetKey]:
        """Return the keys of offsets, and of their tombstones, in flight; of one group if given."""
        return {
            key
            for key in self.in_flight
            if isinstance(key, OffsetKey) and (group_id is None or key.group == group_id)
        }

    # ---- questions

    def knows(self, group_id: str) -> bool:
        """Return whether anything is kept of the group."""
        return group_id in self.groups or group_id in self.offsets.groups()

    def describe(self) -> str:
        """Say how much there is: "12 offsets of 3 groups"."""
        groups = self.groups.keys() | self.offsets.groups()
        return f"{self.offsets.count()} offsets of {len(groups)} groups"

    def name(self, event: Any) -> str:
        """Say which group an event is about."""
        return f"group {event.group_id}"

    def check(self) -> None:
        """Assert what must hold after each step."""
        assert all(count > 0 for count in self.in_flight.values())
        assert self.deleting or not self.recommitted
        self.offsets.check()
