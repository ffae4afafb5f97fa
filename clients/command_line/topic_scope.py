"""A topic, or some of its partitions, as commands name them."""

from collections.abc import Collection

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

    def without(self, partitions: Collection[TopicPartition]) -> "TopicScope | None":
        """Return what is named and is not among the partitions; None if all of it is."""
        held = {partition.partition for partition in partitions if self.holds(partition)}
        if self.partitions is None:
            return None if held else self
        rest = self.partitions - held
        return TopicScope(self.topic, rest) if rest else None
