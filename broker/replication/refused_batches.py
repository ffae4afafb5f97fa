"""Batches of producers with ids that were refused a moment ago.

A partition that knows nothing of a producer appends its batch whatever number that has: those
before it may have been deleted, or were another topic's (KIP-360). But of several batches on their
way the first may be refused, as this broker does not lead yet, and the next may come when it does.
It is refused too, as by a partition that knows the producer: the first would be out of order for
good. Any other batch is sent again, or by a client that was somewhere else meanwhile.
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

KEPT_MS = 2000
"""The batches behind a refused one are on their way already, and come at once."""
MOST_KEPT = 1000
NONE = -1

Key = tuple[TopicPartition, int, int]
"""Partition, producer id and producer epoch."""


@attrs.define(eq=False)
class RefusedBatches:
    """The last batches that were refused one behind the other, by partition, producer and epoch.

    Topics need not be here yet. What a stranger may have kept is bounded.
    """

    monotonic_ms: Callable[[], int]
    _runs: dict[Key, tuple[int, int, int]] = attrs.field(factory=dict)
    """The number of the first, the one behind the last, and the time of its refusal: in order."""

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
        if may_be_there:
            # What was refused long ago is not the first of these (fault strangers-127).
            self._forget_old()
            key = topic_partition, header.producer_id, header.producer_epoch
            first, behind, _ = self._runs.pop(key, (header.base_sequence, NONE, 0))
            if header.base_sequence != behind:
                first = header.base_sequence
            self._runs[key] = first, _next_sequence(header), self.monotonic_ms()
            if len(self._runs) > MOST_KEPT:
                del self._runs[next(iter(self._runs))]

    def check(
        self, topic_partition: TopicPartition, header: BatchHeader, *, is_known: bool
    ) -> None:
        """Raises ApiError OUT_OF_ORDER_SEQUENCE_NUMBER for a batch right behind a refused one.

        With `is_known` the log has numbers of the producer, which decide.
        """
        # Nearly always.
        if not self._runs:
            return
        self._forget_old()
        key = topic_partition, header.producer_id, header.producer_epoch
        if (run := self._runs.get(key)) is None:
            return

        first, behind, at_ms = run
        sequence = header.base_sequence
        # It may be asked twice. A note must not outlive its batches, which another broker may have
        # got: the topic may be made again and led here (fault strangers-122, was: True).
        follows = 0 < (sequence - first) & MAX_SEQUENCE <= (behind - first) & MAX_SEQUENCE
        if is_known or not follows:
            del self._runs[key]
            return
        # The one behind this is refused as well.
        if sequence == behind:
            self._runs[key] = first, _next_sequence(header), at_ms
        reason = (
            f"{topic_partition}: producer {header.producer_id} has sent sequence {sequence} "
            f"behind {first}, which was refused"
        )
        raise ApiError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, reason)

    def _forget_old(self) -> None:
        since_ms = self.monotonic_ms() - KEPT_MS
        while self._runs:
            key, (_, _, at_ms) = next(iter(self._runs.items()))
            if at_ms >= since_ms:
                break
            del self._runs[key]


def _next_sequence(header: BatchHeader) -> int:
    """Return the number of the batch behind this one; the largest is followed by 0."""
    return (header.base_sequence + header.last_offset_delta + 1) & MAX_SEQUENCE
