"""Let a transaction open in a log only if its coordinator knows the partition (KIP-890, part 1).

A producer's first transactional batch opens its transaction in a log, and a marker ends it. A batch
that comes late, behind the marker, would open a transaction that nobody ends. So its producer gets
a `Verdict` first, for which the coordinator is asked. It holds for this producer and epoch, under
this leader, until the next marker: a verdict that was asked for before a marker says nothing about
what comes after it, whenever the coordinator's response arrives.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.replication.partition import Partition
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch_header import BatchHeader
from protocol.topic_partition import TopicPartition

MAX_VERDICTS = 20_000
"""Verdicts that are kept, the newest: those of producers whose transactions are about to open."""


@attrs.define(eq=False)
class Verdict:
    """Say whether a producer may open a transaction in a partition.

    `error` is None until the coordinator has responded (`end`), then NONE or the error for the
    producer.
    `lowest_sequence` is the lowest number that a batch began with while none was allowed yet: a
    later batch must not come before it (KAFKA-14884).
    """

    transactional_id: str
    topic_partition: TopicPartition
    producer_id: int
    epoch: int
    leader_epoch: int
    lowest_sequence: int
    error: ErrorCode | None = None

    def end(self, error: ErrorCode) -> None:
        """Take the coordinator's response."""
        self.error = error
        if error is not ErrorCode.NONE:
            # A client chose it, and it is of no use to the next batch (fault strangers-28).
            self.transactional_id = ""


@attrs.define(eq=False)
class Verification:
    """The verdicts of a broker. `ask` takes each new one to the coordinator, and sets its error."""

    ask: Callable[[Verdict], None] = attrs.field(init=False)
    _verdicts: dict[tuple[TopicPartition, int], Verdict] = attrs.field(factory=dict)

    def verdict_on(
        self, partition: Partition, header: BatchHeader, transactional_id: str
    ) -> Verdict | None:
        """Return the verdict that a batch needs, asked for if need be; None if it needs none."""
        if not _opens_transaction(partition, header):
            return None

        key = partition.topic_partition, header.producer_id
        verdict = self._verdicts.get(key)
        lowest = header.base_sequence
        if verdict is not None and verdict.epoch == header.producer_epoch:
            verdict.lowest_sequence = lowest = min(verdict.lowest_sequence, lowest)
            is_asked_for_it = verdict.transactional_id == transactional_id
            # A refusal holds for one batch: the next one may come in time.
            may_allow = verdict.error is None or verdict.error is ErrorCode.NONE
            if is_asked_for_it and may_allow and verdict.leader_epoch == partition.leader_epoch:
                return verdict

        verdict = Verdict(
            transactional_id,
            partition.topic_partition,
            header.producer_id,
            header.producer_epoch,
            partition.leader_epoch,
            lowest,
        )
        self._verdicts.pop(key, None)
        self._verdicts[key] = verdict
        if len(self._verdicts) > MAX_VERDICTS:
            del self._verdicts[next(iter(self._verdicts))]
        self.ask(verdict)
        return verdict

    def require(self, partition: Partition, header: BatchHeader) -> None:
        """Raise ApiError unless the batch of a client may be appended, as far as this goes."""
        if not _opens_transaction(partition, header):
            return

        verdict = self._verdicts.get((partition.topic_partition, header.producer_id))
        why = f"producer {header.producer_id} epoch {header.producer_epoch}"
        if verdict is None or verdict.epoch != header.producer_epoch:
            raise ApiError(ErrorCode.INVALID_TXN_STATE, f"{why}: its transaction has ended")
        if verdict.error is None or verdict.leader_epoch != partition.leader_epoch:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS, f"{why}: the coordinator has not responded yet"
            )
        if verdict.error is not ErrorCode.NONE:
            raise ApiError(verdict.error, f"{why}: the partition is not in its transaction")

        is_unknown = header.producer_id not in partition.log.producers.producers
        if is_unknown and header.base_sequence > verdict.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{why} sequence {header.base_sequence}: {verdict.lowest_sequence} comes first",
            )

    def end(self, topic_partition: TopicPartition, producer_id: int) -> None:
        """Note the marker of a producer: its next transaction needs another verdict."""
        self._verdicts.pop((topic_partition, producer_id), None)


def _opens_transaction(partition: Partition, header: BatchHeader) -> bool:
    return header.is_transactional and not partition.log.producers.has_open(header.producer_id)
