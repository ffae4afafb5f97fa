"""A partition of `__consumer_offsets` that this broker leads: its groups, and what is under way."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from groups.coordinator.events import Ended
from groups.coordinator.shard import Shard
from offsets.journal import Journal
from offsets.records import OffsetKey, Record
from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class Owned:
    """What the coordinator's shell knows of one. `refusal` is what its groups are told: NONE once
    it is served.

    `is_held_up` while the log takes nothing; `loaded_until` is where the load ended; `deleted` what
    was deleted before it is served, `dropping` what is dropped a slice at a time, with
    `recommitted`, what was committed for it since; `stale` the offsets that could not be dropped.
    """

    partition: int
    journal: Journal[Ended]
    shard: Shard = attrs.field(factory=Shard)
    refusal: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    in_flight_until: int | None = None
    is_held_up: bool = False
    loaded_until: int | None = None
    failed_appends: int = 0
    deleted: set[TopicPartition] = attrs.field(factory=set)
    dropping: list[frozenset[TopicPartition]] = attrs.field(factory=list)
    recommitted: set[OffsetKey] = attrs.field(factory=set)
    stale: dict[OffsetKey, bytes] = attrs.field(factory=dict)

    def offsets_under_way(self) -> frozenset[OffsetKey]:
        """The keys of offsets, and of their tombstones, that are written and not replayed yet."""
        keys = self.journal.keys_under_way()
        return frozenset(key for key in keys if isinstance(key, OffsetKey))

    def note_recommitted(self, records: Sequence[Record]) -> None:
        """Spare what is committed for a topic that was made again while the old one is dropped."""
        for partitions in self.dropping:
            self.recommitted |= {
                key
                for key, value in records
                if value is not None and isinstance(key, OffsetKey) and key[1:] in partitions
            }

    def group_under_way(self, group_id: str) -> frozenset[OffsetKey]:
        """Those of one group."""
        return frozenset(
            key
            for entry in self.journal.under_way()
            if entry.then.group_id == group_id
            for key, _ in entry.records
            if isinstance(key, OffsetKey)
        )
