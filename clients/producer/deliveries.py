"""What a producer owes for each record: a future that is told where the record went, or why not."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count, repeat
from typing import NamedTuple

from clients.producer.accumulator import ProducerBatch
from protocol.messages.produce import ProduceResponsePartition


class RecordMetadata(NamedTuple):
    """Where a record went. `offset` is -1 if it is not known (acks=0).

    `timestamp_ms` is the time of appending for topics that use it, else the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


Delivery = asyncio.Future[RecordMetadata]
Batch = ProducerBatch[Delivery]


def deliver(batch: Batch, answer: ProduceResponsePartition | None) -> None:
    """Complete the futures of an acknowledged batch: one loop, in record order."""
    topic, partition = batch.partition
    offsets: Iterable[int] = repeat(-1)
    if answer is not None and answer.base_offset >= 0:
        offsets = count(answer.base_offset)
    timestamps: Iterable[int] = batch.timestamps
    if answer is not None and answer.log_append_time_ms >= 0:
        timestamps = repeat(answer.log_append_time_ms)
    fields = zip(repeat(topic), repeat(partition), offsets, timestamps)
    # The NamedTuple's own constructor costs more than all else here.
    outcomes = map(tuple.__new__, repeat(RecordMetadata), fields)
    for delivery, metadata in zip(batch.waiters, outcomes, strict=False):
        if not delivery.done():
            delivery.set_result(metadata)


def fail(batch: Batch, error: Callable[[], Exception]) -> int:
    """Fail what is left of a batch; return how many records that are.

    Each future gets an exception of its own: a shared one collects every awaiter's traceback.
    """
    failed = 0
    for delivery in batch.waiters:
        if not delivery.done():
            delivery.set_exception(error())
            delivery.exception()  # seen: who awaits no record hears by the log and the metrics
            failed += 1
    return failed
