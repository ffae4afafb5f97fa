"""Complete the futures of records: each gives the record's place in the log, or an error."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from clients.producer.accumulator import ProducerBatch
from clients.producer.shared_waiter import SharedWaiter
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
    """Complete the futures of an acknowledged batch, in record order."""
    # An expired batch has failed already.
    if batch.settled:
        return
    batch.settled = True

    # The records of a batch have consecutive offsets, from the base offset on.
    topic, partition = batch.partition
    offset, step = -1, 0
    if response is not None and response.base_offset >= 0:
        offset, step = response.base_offset, 1

    # The broker's time replaces the record's (`message.timestamp.type`).
    append_time_ms = -1 if response is None else response.log_append_time_ms

    for waiter, count, timestamp_ms in batch.runs:
        if append_time_ms >= 0:
            timestamp_ms = append_time_ms
        # The NamedTuple's own constructor costs more than all else here.
        place = tuple.__new__(RecordMetadata, (topic, partition, offset, timestamp_ms))
        offset += step * count

        if isinstance(waiter, SharedWaiter):
            waiter.set_results(place, count)
        elif not waiter.done():  # a caller may have cancelled its future
            waiter.set_result(place)


def fail(batch: Batch, error: Callable[[], Exception]) -> int:
    """Fail the unfinished futures of a batch; return their number.

    Each future gets its own exception, because a shared one would collect every awaiter's
    traceback.
    """
    if batch.settled:
        return 0
    batch.settled = True

    failed = 0
    for waiter, count, _ in batch.runs:
        if isinstance(waiter, SharedWaiter):
            waiter.set_exceptions(error(), count)
            failed += count
        elif not waiter.done():
            waiter.set_exception(error())
            waiter.exception()  # mark as seen: the log and the metrics report it too
            failed += 1
    return failed
