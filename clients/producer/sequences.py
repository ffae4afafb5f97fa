"""The numbers of an idempotent producer: by them a broker knows what it has (KIP-98). Pure.

Every record of a partition is numbered; a batch carries the number of its first one and keeps it
on every attempt, so that a batch that is sent again because its answer was lost is not written
again. One batch of a partition is under way at a time (accumulator.py), so the next number
follows from what was acknowledged, and nothing can overtake a retry.

When a batch is given up it may be in the log or not, and the number that comes next cannot be
known. Then the partition begins a new epoch with number 0, which brokers take from any producer
they know by a smaller one (Kafka's own producer does so from 2.5 on; up to 2.3 it asks for a new
id, and the batches of all other partitions that were under way are lost with it). What may still
be on its way under the old epoch is refused.
"""

from typing import Final, NamedTuple

import attrs

from protocol.errors import ErrorCode
from protocol.topic_partition import TopicPartition

MAX_EPOCH = 2**15 - 1
MAX_SEQUENCE = 2**31 - 1
"""After it comes 0."""


class Numbers(NamedTuple):
    """What the header of a batch says of its producer, -1 for nothing."""

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
"""Why a numbered batch fails that the broker refuses."""


@attrs.define(eq=False)
class _Place:
    """How far one partition is."""

    epoch: int = 0
    next_sequence: int = 0
    last_acknowledged: int = -1


@attrs.define(eq=False)
class Sequences:
    """The producer's id, None until a broker has given one, and how far each partition is."""

    producer_id: int | None = None
    _places: dict[TopicPartition, _Place] = attrs.field(factory=dict)

    def numbers(self, partition: TopicPartition) -> Numbers:
        """Those of the next batch of a partition. There must be an id, and no batch under way."""
        assert self.producer_id is not None
        place = self._places.setdefault(partition, _Place())
        return Numbers(self.producer_id, place.epoch, place.next_sequence)

    def delivered(
        self, partition: TopicPartition, numbers: Numbers, count: int, base_offset: int
    ) -> None:
        """A batch of `count` records is in the log, from `base_offset` on."""
        place = self._place(partition, numbers)
        if place is not None:
            place.next_sequence = (numbers.base_sequence + count) & MAX_SEQUENCE
            if base_offset >= 0:  # a broker may know that it has a batch, but not where
                place.last_acknowledged = base_offset + count - 1

    def given_up(self, partition: TopicPartition, numbers: Numbers) -> None:
        """A batch with these numbers will not be sent again: begin a new epoch.

        After the last one there is, another id is wanted.
        """
        place = self._place(partition, numbers)
        if place is None:
            return
        if place.epoch == MAX_EPOCH:
            self.producer_id = None
            self._places.clear()
        else:
            place.epoch, place.next_sequence = place.epoch + 1, 0

    def may_begin_anew(
        self, partition: TopicPartition, numbers: Numbers, attempts: int, log_start_offset: int
    ) -> bool:
        """Whether a batch of an unknown producer cannot be in the log: it may get new numbers.

        Either it was never sent before, or all that was acknowledged is below the log's start, as
        after retention: that is what the broker forgot the producer with.
        """
        place = self._place(partition, numbers)
        if place is None:
            return False
        return attempts == 0 or place.last_acknowledged < log_start_offset

    def _place(self, partition: TopicPartition, numbers: Numbers) -> _Place | None:
        """The partition's place, if these numbers are of its present epoch."""
        place = self._places.get(partition)
        if place is None or (numbers.producer_id, numbers.producer_epoch) != (
            self.producer_id,
            place.epoch,
        ):
            return None
        return place
