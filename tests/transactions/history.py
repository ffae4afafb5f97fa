"""What clients of transactions did and were told, as values that the checker judges.

A value is written once: it names the attempt that wrote it and its place in that. So whatever is
read tells by itself whose it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

import attrs

from protocol.topic_partition import TopicPartition


class Outcome(Enum):
    """What a producer knows of its transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """The response to the commit did not come: it is committed, or aborted, and nobody may say."""


def value_of(attempt: int, place: int, amount: int = 0) -> bytes:
    """Return the value at a place of an attempt; amounts of a transfer add up to 0."""
    return f"{attempt}/{place}/{amount}".encode()


def read_value(value: bytes) -> tuple[int, int, int]:
    """Return attempt, place and amount of a value."""
    attempt, place, amount = value.decode().split("/")
    return int(attempt), int(place), int(amount)


@attrs.define(eq=False)
class Attempt:
    """One transaction of one producer, from its begin to what became of it.

    - `writes`: value -> its partition, and its offset if that was acknowledged (else -1).
    - `inputs`: what it processed, as (partition, offset).
    - `offsets`: the offsets that it committed with it.
    - `saw`: the attempts of which it had read a committed value when it began.
    """

    number: int
    producer: str
    outcome: Outcome = Outcome.ABORTED
    writes: dict[bytes, tuple[TopicPartition, int]] = attrs.field(factory=dict)
    inputs: list[tuple[TopicPartition, int]] = attrs.field(factory=list)
    offsets: dict[TopicPartition, int] = attrs.field(factory=dict)
    saw: set[int] = attrs.field(factory=set)


@attrs.define(eq=False)
class Reading:
    """What one reader read of one partition, in the order in which it did: (offset, value).

    `position` is where it would go on: it has passed all below.
    """

    reader: str
    partition: TopicPartition
    is_committed: bool
    rows: list[tuple[int, bytes]] = attrs.field(factory=list)
    position: int = 0


@attrs.define(eq=False)
class History:
    """All that happened.

    - `committed` and `everything`: the partitions as they are at the end, read with each isolation
      level.
    - `observed`: offsets that were found committed, in the order in which they were asked for.
    - `stable`: last stable offsets, as (partition, leader epoch, offset), in that order too.
    - `stuck`: readers that did not come to the end after all faults had ended, and why.
    """

    attempts: dict[int, Attempt] = attrs.field(factory=dict)
    readings: list[Reading] = attrs.field(factory=list)
    committed: dict[TopicPartition, dict[int, bytes]] = attrs.field(factory=dict)
    everything: dict[TopicPartition, dict[int, bytes]] = attrs.field(factory=dict)
    observed: list[Mapping[TopicPartition, int]] = attrs.field(factory=list)
    stable: list[tuple[TopicPartition, int, int]] = attrs.field(factory=list)
    stuck: list[str] = attrs.field(factory=list)

    def begin(self, producer: str, saw: Iterable[int] = ()) -> Attempt:
        """Begin an attempt."""
        attempt = Attempt(len(self.attempts), producer, saw=set(saw))
        self.attempts[attempt.number] = attempt
        return attempt

    def confirmed(self, partition: TopicPartition) -> int:
        """Return the largest offset that is known to be committed, -1 for none."""
        committed = [
            attempt.offsets[partition]
            for attempt in self.attempts.values()
            if attempt.outcome is Outcome.COMMITTED and partition in attempt.offsets
        ]
        return max([*committed, *(found.get(partition, -1) for found in self.observed)], default=-1)

    def read(self, reader: str, partition: TopicPartition, *, is_committed: bool = True) -> Reading:
        """Begin to read a partition."""
        reading = Reading(reader, partition, is_committed)
        self.readings.append(reading)
        return reading
