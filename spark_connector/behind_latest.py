"""Measure how far a query is behind its topics, by the offsets in its progress.

Spark takes no metrics from a source in Python, but its progress has where a batch ended and where
the logs ended then. The numbers are those of Spark's own Kafka source.
"""

from collections.abc import Mapping

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition
from spark_connector.stream_offset import Offsets


@frozen
class BehindLatest:
    """Offsets behind the logs' ends after a batch, by partition; of one at least."""

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        """Offsets behind in all partitions."""
        return sum(self.by_partition.values())

    @property
    def metrics(self) -> dict[str, str]:
        """The metrics of Spark's Kafka source, as it writes them."""
        numbers = self.by_partition.values()
        return {
            "avgOffsetsBehindLatest": str(self.total / len(numbers)),
            "maxOffsetsBehindLatest": str(max(numbers)),
            "minOffsetsBehindLatest": str(min(numbers)),
        }


def find_behind_latest(end: Offsets, latest: Offsets) -> BehindLatest | None:
    """Compare the end of a batch with the logs' ends; None if they have no partition in common.

    A partition that is ahead is not behind: a log may have been truncated.
    """
    behind = {p: max(latest[p] - offset, 0) for p, offset in end.items() if p in latest}
    return BehindLatest(behind) if behind else None
