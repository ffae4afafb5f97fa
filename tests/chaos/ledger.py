"""What was promised: every acknowledgement, every message that was handed out, every commit.

Each producer numbers its records, partition by partition: the value is "producer:number". So what
is stored can be told from what should be, without knowing anything else.
"""

from collections import defaultdict

import attrs

from protocol.topic_partition import TopicPartition


def value_of(producer: str, number: int) -> bytes:
    """A record's value."""
    return f"{producer}:{number}".encode()


def read_value(value: bytes) -> tuple[str, int]:
    """Producer and number of a record."""
    producer, _, number = value.decode().rpartition(":")
    return producer, int(number)


@attrs.define(eq=False)
class Produced:
    """What one producer has sent and was told. Times are the story's, in seconds."""

    producer: str
    is_idempotent: bool
    sent: dict[TopicPartition, int] = attrs.field(factory=lambda: defaultdict(int))
    """How many of each partition; the numbers are 0, 1, 2 …"""
    acknowledged: dict[TopicPartition, dict[int, int]] = attrs.field(
        factory=lambda: defaultdict(dict)
    )
    """The offset (-1: not told) by the number."""
    failed: list[str] = attrs.field(factory=list)
    """Deliveries that ended with an error, which none should."""
    renumbered: int = 0
    """How often its client says that it left numbers out and so begins anew (librdkafka issue 4953,
    when a partition's leader moves): what is stored already it may then send under new numbers,
    and no broker can tell."""
    gaps: list[tuple[TopicPartition, float, float]] = attrs.field(factory=list)
    """Partition, begin and end of each time without an acknowledgement, of GAP_S or more."""
    last: dict[TopicPartition, float] = attrs.field(factory=dict)

    @property
    def count(self) -> int:
        """How many were acknowledged."""
        return sum(map(len, self.acknowledged.values()))

    def enter(self, partition: TopicPartition, number: int, offset: int, now: float) -> None:
        """A record has been acknowledged."""
        self.acknowledged[partition][number] = offset
        if now - self.last.get(partition, now) >= GAP_S:
            self.gaps.append((partition, self.last[partition], now))
        self.last[partition] = now


GAP_S = 1.0
"""Silences shorter than this count as none."""


@attrs.define(eq=False)
class Observed:
    """What somebody was handed out, by partition and offset. Nothing may ever change there."""

    who: str
    values: dict[TopicPartition, dict[int, bytes]] = attrs.field(factory=lambda: defaultdict(dict))
    changed: list[str] = attrs.field(factory=list)
    again: int = 0

    def enter(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """A message was handed out."""
        before = self.values[partition].setdefault(offset, value)
        if before is not value:
            self.again += 1
            if before != value:
                self.changed.append(
                    f"{self.who} read {before!r} and then {value!r} at {partition}@{offset}"
                )


@attrs.define(eq=False)
class Committed:
    """A group's offset of one partition, committed by one who counts up; or by its members."""

    who: str
    tried: dict[TopicPartition, int] = attrs.field(factory=dict)
    confirmed: dict[TopicPartition, int] = attrs.field(factory=lambda: defaultdict(lambda: -1))
    """What can't be gone any more: acknowledged, or read."""
    count: int = 0
    gone_back: list[str] = attrs.field(factory=list)

    def confirm(self, partition: TopicPartition, offset: int) -> None:
        """It was acknowledged, or read, that the offset is this one at least."""
        self.confirmed[partition] = max(offset, self.confirmed[partition])

    def read(self, partition: TopicPartition, offset: int, at_least: int) -> None:
        """The offset was read (-1: there is none); `at_least` was confirmed before that began."""
        if offset < at_least:
            self.gone_back.append(f"{self.who} {partition}: {offset}, was {at_least} before")
        self.confirm(partition, offset)
