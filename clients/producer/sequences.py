"""The numbers of an idempotent producer, by which a broker recognises its batches (KIP-98). Pure.

The records of a partition are numbered. A batch carries the number of its first record on every
attempt, so that a batch that is sent again because its response was lost is not written again. One
batch of a partition is in flight at a time (accumulator.py), so the next number follows from the
last acknowledged batch, and nothing can overtake a retry.

A batch that is given up may be in the log or not, so the next number is unknown. Then the partition
starts a new epoch with number 0. Brokers accept that from a producer that they know by a smaller
epoch, and refuse batches of the old epoch that arrive later. Kafka's producer does the same from
2.5 on. Up to 2.3 it asks for a new id, and batches of all other partitions in flight are lost.
"""

from typing import Final, NamedTuple

import attrs

from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

MAX_EPOCH = 2**15 - 1
MAX_SEQUENCE = 2**31 - 1
"""The last number; 0 follows it."""


class Numbers(NamedTuple):
    """The producer's fields in the header of a batch; -1 for none."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


UNNUMBERED: Final = Numbers(-1, -1, -1)

REASONS = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: (
        "the log does not end with what was acknowledged last: the broker has lost records"
    ),
    ErrorCode.UNKNOWN_PRODUCER_ID: (
        "the broker has forgotten the producer, and so whether an earlier attempt was written"
    ),
    ErrorCode.INVALID_PRODUCER_EPOCH: "a later epoch of this producer has been seen",
}
"""Text for the refusal of a numbered batch, by error."""


@attrs.define(eq=False)
class _PartitionState:
    """The progress of one partition."""

    epoch: int = 0
    next_sequence: int = 0
    last_acknowledged: int = -1
    """The last offset; -1 if no response has told one."""


@attrs.define(eq=False)
class Sequences:
    """The producer's id, None before a broker gave one, and the progress of each partition."""

    producer_id: int | None = None
    _states: dict[TopicPartition, _PartitionState] = attrs.field(factory=dict)

    def next_numbers(self, partition: TopicPartition) -> Numbers:
        """Return the numbers of the partition's next batch. None of its batches is in flight."""
        assert self.producer_id is not None

        state = self._states.setdefault(partition, _PartitionState())
        return Numbers(self.producer_id, state.epoch, state.next_sequence)

    def record_delivery(
        self, partition: TopicPartition, numbers: Numbers, count: int, base_offset: int
    ) -> None:
        """Count a batch of `count` records that is in the log, from `base_offset` on."""
        state = self._current_state(partition, numbers)
        if state is not None:
            # Numbers wrap: 0 follows the last one.
            state.next_sequence = (numbers.base_sequence + count) & MAX_SEQUENCE
            if base_offset >= 0:  # a broker may know that it has a batch, but not its offset
                state.last_acknowledged = base_offset + count - 1

    def begin_epoch(self, partition: TopicPartition, numbers: Numbers) -> None:
        """Start a new epoch: a batch with these numbers will not be sent again.

        After the last epoch a new producer id is needed.
        """
        state = self._current_state(partition, numbers)
        if state is None:
            return

        # Epochs have 16 bits in a batch's header.
        if state.epoch == MAX_EPOCH:
            self.producer_id = None
            # Under another id all partitions begin at 0.
            self._states.clear()
        else:
            state.epoch += 1
            state.next_sequence = 0

    def may_renumber(
        self, partition: TopicPartition, numbers: Numbers, attempts: int, log_start_offset: int
    ) -> bool:
        """Return whether a batch of an unknown producer cannot be in the log.

        Such a batch may get new numbers. Either it was never sent before, or all acknowledged
        records are below the log's start, as after retention, so that the broker forgot the
        producer with them.
        """
        state = self._current_state(partition, numbers)
        if state is None:
            return False

        # A new record cannot be in the log; an old one is below its start. -1 is no offset, but
        # that of a first batch which the broker had, and did not say where.
        return attempts == 0 or 0 <= state.last_acknowledged < log_start_offset

    def _current_state(self, partition: TopicPartition, numbers: Numbers) -> _PartitionState | None:
        """Return the partition's state if these numbers are of its current epoch."""
        # Another batch may have begun an epoch since, which makes these numbers void.
        state = self._states.get(partition)
        if state is None or (numbers.producer_id, numbers.producer_epoch) != (
            self.producer_id,
            state.epoch,
        ):
            return None
        return state
