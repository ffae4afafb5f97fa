"""Runs fsync off the event loop: one flush of a log at a time, another when more became due."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import attrs

from broker.replication.partition import Partition
from core_log.log_work import LogWork
from protocol.errors import ApiError
from protocol.topic_partition import TopicPartition


@attrs.define(eq=False)
class Flusher:
    """`spawn` runs a guarded task; `flushed` hears of each log whose recovery point moved, or
    never will again because its flush failed."""

    work: LogWork
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    monotonic_ms: Callable[[], int]
    flushed: Callable[[Partition], None] = lambda partition: None
    _running: set[TopicPartition] = attrs.field(factory=set)

    def start(self, partition: Partition) -> None:
        """Flush what the log holds now, unless a flush of it is under way."""
        if partition.topic_partition not in self._running:
            self._running.add(partition.topic_partition)
            self.spawn(self._flush(partition))

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        try:
            while True:
                await self.work.flush(log)
                self.flushed(partition)
                log = partition.log  # another one, if the replica was moved meanwhile
                if not log.is_flush_due(self.monotonic_ms()):
                    break
        except ApiError:  # the log has said it
            self.flushed(partition)
        finally:
            self._running.discard(partition.topic_partition)
