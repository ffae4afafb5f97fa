"""Since when groups have something to consume, and whose turn it is to be asked for. Pure.

A look asks for a bounded number of records, so those with lag take turns: what was asked for last
waits longest, whatever the answer was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import attrs

from clients.first_timestamps import FirstRecords
from clients.groups.group_facts import LogOffsets
from protocol.topic_partition import TopicPartition

Consumer = tuple[str, TopicPartition]
"""A group, and a partition that it consumes."""
Place = tuple[TopicPartition, int]
"""A partition, and the offset at which a group goes on."""


@attrs.define(eq=False)
class UnreadTimes:
    """The times of first unread records, between looks."""

    since_ms: dict[Place, int] = attrs.field(factory=dict)
    # Places without a time: the log as it was when there was no record, or None where the record
    # has no time.
    _without: dict[Place, LogOffsets | None] = attrs.field(factory=dict)
    refused: frozenset[TopicPartition] = frozenset()
    """Those whose records the client may not read."""
    # The number of the look in which a consumer was asked for last.
    _turns: dict[Consumer, int] = attrs.field(factory=dict)
    _looks: int = 0

    def keep(
        self, lagging: Mapping[Consumer, Place], logs: Mapping[TopicPartition, LogOffsets]
    ) -> None:
        """Forget what is no longer asked for, and answers that a log has outgrown."""
        places = set(lagging.values())
        # Another dict each time: threads may still read the former one.
        self.since_ms = {place: ms for place, ms in self.since_ms.items() if place in places}
        self._without = {
            place: log
            for place, log in self._without.items()
            if place in places and (log is None or log == logs.get(place[0]))
        }
        self._turns = {consumer: at for consumer, at in self._turns.items() if consumer in lagging}
        self.refused &= {partition for partition, _ in places}

    def choose(
        self, lagging: Mapping[Consumer, Place], most: int, most_of_partition: int
    ) -> Collection[Place]:
        """Return the places to ask for in this look."""
        self._looks += 1
        waiting = [
            consumer
            for consumer, place in lagging.items()
            if place not in self.since_ms and place not in self._without
        ]
        # Who was never asked for comes first, and then who has waited longest (fault tool-F4).
        waiting.sort(key=lambda consumer: self._turns.get(consumer, 0))

        chosen: dict[Place, None] = {}
        of_partition: Counter[TopicPartition] = Counter()
        for consumer in waiting:
            place = lagging[consumer]
            if place not in chosen:
                if len(chosen) == most or of_partition[place[0]] == most_of_partition:
                    continue
                chosen[place] = None
                of_partition[place[0]] += 1
            self._turns[consumer] = self._looks
        return chosen

    def note(
        self,
        asked: Mapping[TopicPartition, int],
        found: FirstRecords,
        logs: Mapping[TopicPartition, LogOffsets],
    ) -> None:
        """Take the answers to one request. What could not be read is asked for again."""
        # Without it a group seems to have nothing to consume (fault strangers-49).
        self.refused = (self.refused - asked.keys()) | found.refused
        self.since_ms = self.since_ms | {(p, asked[p]): ms for p, ms in found.timestamps.items()}
        self._without |= {(p, asked[p]): None for p in found.untimed}
        # No record is an answer too, as long as none is added (fault tool-F4).
        self._without |= {(p, asked[p]): logs.get(p) for p in found.without}
