"""Batches of producers with ids that were refused a moment ago.

A partition that knows nothing of a producer appends its batch whatever number that has: those
before it may have been deleted, or were another topic's (KIP-360). But of several batches on their
way the first may be refused, as this broker does not lead yet, and the next may come when it does.
It is refused too, as by a partition that knows the producer: the first would be out of order for
good.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from core_log.producers.producer_state import MAX_SEQUENCE
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import BatchHeader, read_header
from protocol.records.corrupt_record import CorruptRecord
from protocol.topic_name import is_legal
from protocol.topic_partition import TopicPartition

KEPT_MS = 30_000
"""The batches behind a refused one are on their way already, and come soon."""
MOST_KEPT = 1000

Key = tuple[TopicPartition, int, int]
"""Partition, producer id and producer epoch."""


@attrs.define(eq=False)
class RefusedBatches:
    """The first number that was refused, by partition, producer and epoch, until it is sent again.

    Topics need not be here yet. What a stranger may have kept is bounded.
    """

    monotonic_ms: Callable[[], int]
    _first: dict[Key, tuple[int, int]] = attrs.field(factory=dict)
    """With the time of the last refusal, the latest last."""

    def note(self, topic_partition: TopicPartition, records: bytes | memoryview | None) -> None:
        """Note that what a producer sent was refused, whatever it is."""
        try:
            header = read_header(records or b"")
        except CorruptRecord:
            return
        if header.producer_id < 0 or header.base_sequence < 0:
            return
        # A name of any length would be kept (fault strangers-121, was: True).
        may_be_there = is_legal(topic_partition.topic)
        if not may_be_there:
            return

        now_ms = self.monotonic_ms()
        self._forget_old(now_ms)
        key = topic_partition, header.producer_id, header.producer_epoch
        first, _ = self._first.pop(key, (header.base_sequence, 0))
        if _is_behind(first, header.base_sequence):
            first = header.base_sequence
        self._first[key] = first, now_ms
        if len(self._first) > MOST_KEPT:
            del self._first[next(iter(self._first))]

    def check(
        self, topic_partition: TopicPartition, header: BatchHeader, *, is_known: bool
    ) -> None:
        """Raises ApiError OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that was refused.

        With `is_known` the log has numbers of the producer, which decide.
        """
        # Nearly always.
        if not self._first:
            return
        self._forget_old(self.monotonic_ms())
        key = topic_partition, header.producer_id, header.producer_epoch
        noted = self._first.get(key)
        if noted is None:
            return

        first, _ = noted
        if not is_known and _is_behind(header.base_sequence, first):
            reason = (
                f"{topic_partition}: producer {header.producer_id} has sent sequence "
                f"{header.base_sequence} behind {first}, which was refused"
            )
            raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)
        # It is sent again: what was refused before is over, also for the next topic of this name
        # (fault strangers-122).
        del self._first[key]

    def _forget_old(self, now_ms: int) -> None:
        while self._first:
            key, (_, at_ms) = next(iter(self._first.items()))
            if now_ms - at_ms <= KEPT_MS:
                break
            del self._first[key]


def _is_behind(sequence: int, first: int) -> bool:
    """Return whether a number comes after another one; the largest is followed by 0."""
    return 0 < (sequence - first) & MAX_SEQUENCE <= MAX_SEQUENCE // 2
