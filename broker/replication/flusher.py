"""Flush logs off the event loop: one flush of a log at a time, and the next when it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.replication.partition import Partition
from core_log.log_work import LogWork
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition

FLUSHES_AT_ONCE = 8
"""Bound on the flushes that end in one turn of the loop; a segment may begin after each."""


@attrs.define(eq=False)
class Flusher:
    """Flushes the logs of partitions.

    `spawn` starts a task of the broker. `flushed(partition)` is called when the recovery point of a
    log has moved, and when its flush has failed.
    """

    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    monotonic_ms: Callable[[], int]
    flushed: Callable[[Partition], None] = lambda partition: None
    _running: set[TopicPartition] = attrs.field(factory=set)
    _slots: asyncio.Semaphore = attrs.field(factory=lambda: asyncio.Semaphore(FLUSHES_AT_ONCE))

    def start(self, partition: Partition) -> None:
        """Flush the log, unless a flush of it is in flight."""
        if partition.topic_partition not in self._running:
            self._running.add(partition.topic_partition)
            self.spawn(self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        try:
            while True:
                async with self._slots:
                    await self.work.flush(log)
                    self.flushed(partition)

                # The replica may have been moved to another directory meanwhile.
                log = partition.log
                # What was appended during the flush may be due already.
                if not log.is_flush_due(self.monotonic_ms()):
                    break
        except ApiError:
            # The log has logged its failure.
            self.flushed(partition)
        finally:
            self._running.discard(partition.topic_partition)
