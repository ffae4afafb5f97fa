"""Find out where a log ends with nothing but markers of transactions: behind them is no lag.

Markers have offsets, and a consumer that has processed the last message commits the offset behind
it, which is before the marker. The answer is in the logs alone, so they are read where a lag is so
small that it may be one of markers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from clients.cluster import Cluster
from clients.errors import KgroupError
from clients.groups.group_facts import LogOffsets
from clients.groups.lag import next_offset
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

MOST_MARKERS = 16
"""A lag up to this may be of markers alone: the log is read to tell."""


@frozen
class _Tail:
    """The end of a log as far as it was looked at."""

    log: LogOffsets
    records_behind: int = -1
    """There is a record at this offset or behind it, and so behind all smaller ones."""
    markers_from: int | None = None
    """There is no record at this offset or behind it, and so behind no larger one."""

    def is_open(self, offset: int) -> bool:
        """Return whether nobody has looked yet if there are records behind an offset."""
        is_known = self.markers_from is not None and offset >= self.markers_from
        return not is_known and offset > self.records_behind


@attrs.define(eq=False)
class MarkerTails:
    """Looks at the ends of logs, and remembers what it saw of a log while it stays the same."""

    isolation: int = 0
    _tails: dict[TopicPartition, _Tail] = attrs.field(factory=dict)

    async def look(
        self,
        cluster: Cluster,
        logs: Mapping[TopicPartition, LogOffsets],
        committed: Iterable[tuple[TopicPartition, int | None]],
    ) -> dict[TopicPartition, LogOffsets]:
        """Return the logs with their `markers_from`, as far as commits in them need it.

        Each leader is asked for MAX_PARTITIONS of `clients.first_timestamps` in a request, for few
        bytes of each. What cannot be read now is taken for records.
        """
        self._tails = {
            partition: tail
            if (tail := self._tails.get(partition)) is not None and tail.log == log
            else _Tail(log)
            for partition, log in logs.items()
        }

        left = self._questions(logs, committed)
        while left:
            # The largest offset first: mostly there is a record behind it, and so behind all.
            asked = {partition: max(offsets) for partition, offsets in left.items()}
            without = await self._ask(cluster, asked)
            left = {
                partition: smaller
                for partition, offsets in left.items()
                if partition in without and (smaller := offsets - {asked[partition]})
            }

        return {
            partition: attrs.evolve(log, markers_from=self._tails[partition].markers_from)
            for partition, log in logs.items()
        }

    def _questions(
        self,
        logs: Mapping[TopicPartition, LogOffsets],
        committed: Iterable[tuple[TopicPartition, int | None]],
    ) -> dict[TopicPartition, set[int]]:
        """Return the offsets behind which there may be nothing but markers."""
        questions: dict[TopicPartition, set[int]] = {}
        for partition, offset in committed:
            log = logs.get(partition, LogOffsets())
            start = next_offset(offset, log)
            if start is None or log.end is None or not 0 < log.end - start <= MOST_MARKERS:
                continue
            if self._tails[partition].is_open(start):
                questions.setdefault(partition, set()).add(start)
        return questions

    async def _ask(
        self, cluster: Cluster, asked: Mapping[TopicPartition, int]
    ) -> set[TopicPartition]:
        """Look behind the offsets, and return the partitions that have no record there."""
        # Most tables need no look, so their commands do not wait for the import.
        from clients.first_timestamps import look_for_records

        try:
            seen = await look_for_records(cluster, asked, self.isolation)
        except KgroupError:
            return set()

        for partition, has_records in seen.items():
            tail, offset = self._tails[partition], asked[partition]
            self._tails[partition] = (
                attrs.evolve(tail, records_behind=offset)
                if has_records
                else attrs.evolve(tail, markers_from=offset)
            )
        return {partition for partition, has_records in seen.items() if not has_records}
