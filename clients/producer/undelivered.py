"""What a producer says in its log of records that it could not deliver.

A record's future tells why it was not delivered, but nobody has to await it. So that no loss goes
unseen, each partition and error is a line with the number of records, some time after the first of
them, so that one line counts many. Pure but for the log: told the time.
"""

import logging

import attrs

from clients.errors import BrokerError
from protocol.topic_partition import TopicPartition

_log = logging.getLogger(__name__)

GATHER_MS = 1000
"""How long after the first failure the lines are written."""

MAX_LINES = 20
"""So many partitions and errors have a line of their own each time; the others share one."""


@attrs.define(eq=False)
class Undelivered:
    """Counts failures until their lines are due."""

    _counts: dict[tuple[TopicPartition, str], tuple[int, Exception]] = attrs.field(factory=dict)
    _since_ms: int = 0

    def add(
        self, partition: TopicPartition, error: Exception, records: int, monotonic_ms: int
    ) -> None:
        """Count records that failed."""
        if not records:
            return
        if not self._counts:
            self._since_ms = monotonic_ms

        kind = error.code.name if isinstance(error, BrokerError) else type(error).__name__
        count, _ = self._counts.get((partition, kind), (0, error))
        self._counts[partition, kind] = (count + records, error)

    def due_in_ms(self, monotonic_ms: int) -> int | None:
        """The time until lines are due; None if there is nothing to say."""
        return max(0, self._since_ms + GATHER_MS - monotonic_ms) if self._counts else None

    def write_due(self, monotonic_ms: int) -> None:
        """Log what was counted, if it is due."""
        if self.due_in_ms(monotonic_ms) == 0:
            self.write()

    def write(self) -> None:
        """Log what was counted, now."""
        lines, self._counts = sorted(self._counts.items()), {}
        for (partition, _), (count, error) in lines[:MAX_LINES]:
            _log.warning("%s: %d records were not delivered: %s", partition, count, error)

        if rest := lines[MAX_LINES:]:
            records = sum(count for _, (count, _) in rest)
            partitions = len({partition for (partition, _), _ in rest})
            _log.warning("%d records of %d more partitions were not delivered", records, partitions)
