"""A topic, or some of its partitions, as commands name them."""

from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition


@frozen
class TopicScope:
    """A topic, or some partitions of it."""

    topic: str
    partitions: frozenset[int] | None = None

    def __str__(self) -> str:
        numbers = (
            "" if self.partitions is None else f":{','.join(map(str, sorted(self.partitions)))}"
        )
        return f"{self.topic}{numbers}"

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether the partition is in the scope."""
        return partition.topic == self.topic and (
            self.partitions is None or partition.partition in self.partitions
        )
