"""Complete the futures of records: each gives the record's place in the log, or an error."""

import asyncio
from collections.abc import Callable, Iterable
from itertools import count, repeat
from typing import NamedTuple

from clients.producer.accumulator import ProducerBatch
from protocol.messages.produce import ProduceResponsePartition


class RecordMetadata(NamedTuple):
    """The place of a record in the log. `offset` is -1 if it is not known (acks=0).

    `timestamp_ms` is the time of appending for topics that use it, otherwise the record's own.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


Delivery = asyncio.Future[RecordMetadata]
Batch = ProducerBatch[Delivery]


def deliver(batch: Batch, response: ProduceResponsePartition | None) -> None:
    """Complete the futures of an acknowledged batch: one loop, in record order."""
    # The records of a batch have consecutive offsets, from the base offset on.
    topic, partition = batch.partition
    offsets: Iterable[int] = repeat(-1)
    if response is not None and response.base_offset >= 0:
        offsets = count(response.base_offset)

    # The broker's time replaces the record's (`message.timestamp.type`).
    timestamps: Iterable[int] = batch.timestamps
    if response is not None and response.log_append_time_ms >= 0:
        timestamps = repeat(response.log_append_time_ms)

    fields = zip(repeat(topic), repeat(partition), offsets, timestamps)
    # The NamedTuple's own constructor costs more than all else here.
    results = map(tuple.__new__, repeat(RecordMetadata), fields)
    for delivery, metadata in zip(batch.waiters, results, strict=False):
        # A caller may have cancelled its future, or the batch have expired.
        if not delivery.done():
            delivery.set_result(metadata)


def fail(batch: Batch, error: Callable[[], Exception]) -> int:
    """Fail the unfinished futures of a batch; return their number.

    Each future gets its own exception, because a shared one would collect every awaiter's
    traceback.
    """
    failed = 0
    for delivery in batch.waiters:
        if not delivery.done():
            delivery.set_exception(error())
            delivery.exception()  # mark as seen: the log and the metrics report it too
            failed += 1
    return failed
