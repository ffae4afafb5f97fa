"""What the coordinator asks of the log of `__consumer_offsets`, partition by partition.

`broker.coordinators.offsets_log` is the real one, `groups.coordinator.memory_offsets_log` its twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class NotYet(Exception):
    """Nothing can be appended now; who listens to `on_committed` is called when it can."""


class OffsetsLog(Protocol):
    """The partitions of the topic that this broker leads. All calls may raise ApiError."""

    def append(self, partition: int, batch: bytes, now_ms: int) -> int:
        """Append one batch as with acks=all; the offset of its last record. Raises NotYet too."""

    def max_batch_bytes(self, partition: int) -> int:
        """The largest batch the partition takes."""

    def committed_end(self, partition: int) -> int:
        """The first offset that is not replicated yet, or not flushed where a flush is due."""

    def is_enough_in_sync(self, partition: int) -> bool:
        """Whether min.insync.replicas, or more, have all of it."""

    def on_committed(self, partition: int, listener: Callable[[], None]) -> None:
        """Call `listener` whenever `committed_end` may have moved. Asked once per partition."""

    def start_offset(self, partition: int) -> int:
        """Where the log begins."""

    def end_offset(self, partition: int) -> int:
        """Where it ends, replicated or not."""

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Batches from the one that holds `offset` on; b"" at the end.

        The first is whole, however large it is; the last may be cut.
        """
