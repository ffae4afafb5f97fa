"""The numbers of a transactional producer's batches. Pure.

All partitions have the epoch that the coordinator gave. A batch that is given up may be in the log
or not, so the next number is unknown; the transaction cannot be committed then, and the coordinator
gives another epoch, in which all partitions begin at 0 (KIP-360).
"""

import attrs

from clients.producer.sequences import MAX_SEQUENCE, Numbers
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class TransactionNumbers:
    """The producer's id and epoch, None and -1 before it has any, and each partition's number."""

    producer_id: int | None = None
    producer_epoch: int = -1
    _next: dict[TopicPartition, int] = attrs.field(factory=dict)

    def renew(self, producer_id: int, producer_epoch: int) -> None:
        """Begin an epoch."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self._next.clear()

    def next_numbers(self, partition: TopicPartition) -> Numbers:
        """Return the numbers of the partition's next batch. None of its batches is in flight."""
        assert self.producer_id is not None
        return Numbers(self.producer_id, self.producer_epoch, self._next.get(partition, 0))

    def record_delivery(
        self, partition: TopicPartition, numbers: Numbers, count: int, base_offset: int
    ) -> None:
        """Count a batch of `count` records that is in the log."""
        if (numbers.producer_id, numbers.producer_epoch) == (self.producer_id, self.producer_epoch):
            # Numbers wrap: 0 follows the last one.
            self._next[partition] = (numbers.base_sequence + count) & MAX_SEQUENCE

    def begin_epoch(self, partition: TopicPartition, numbers: Numbers) -> None:
        """Begin none: that is the coordinator's, and the failed batch ends the transaction."""

    def may_renumber(
        self, partition: TopicPartition, numbers: Numbers, attempts: int, log_start_offset: int
    ) -> bool:
        """Return False: batches keep their numbers."""
        return False
