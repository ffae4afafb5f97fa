"""Log the records that a producer could not deliver.

A record's future has the reason, but nobody has to await it. So that no loss goes unnoticed, the
log gets a line for each partition and error, with the number of records. The lines are written some
time after the first failure, so that one line counts many. Pure but for the log.
"""

import logging

import attrs

from clients.errors import BrokerError
from protocol.topic_partition import TopicPartition

logger = logging.getLogger(__name__)

GATHER_MS = 1000
"""Time between the first failure and the lines."""

MAX_LINES = 20
"""Number of partitions and errors with a line of their own at a time; the others share one."""


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
            # The first failure starts the time; later ones join its lines.
            self._since_ms = monotonic_ms

        # By the kind of error: its text may differ from batch to batch.
        kind = error.code.name if isinstance(error, BrokerError) else type(error).__name__
        count, _ = self._counts.get((partition, kind), (0, error))
        self._counts[partition, kind] = (count + records, error)

    def due_in_ms(self, monotonic_ms: int) -> int | None:
        """Return the time until lines are due; None if there are none."""
        return max(0, self._since_ms + GATHER_MS - monotonic_ms) if self._counts else None

    def write_due(self, monotonic_ms: int) -> None:
        """Log the counts, if they are due."""
        if self.due_in_ms(monotonic_ms) == 0:
            self.write()

    def write(self) -> None:
        """Log the counts now."""

        lines = sorted(self._counts.items())
        # A failure after these lines starts other counts.
        self._counts = {}
        for (partition, _), (count, error) in lines[:MAX_LINES]:
            logger.warning("%s: %d records were not delivered: %s", partition, count, error)

        # A whole cluster that fails must not flood the log.
        if rest := lines[MAX_LINES:]:
            records = sum(count for _, (count, _) in rest)
            partitions = len({partition for (partition, _), _ in rest})
            logger.warning(
                "%d records of %d more partitions were not delivered", records, partitions
            )
