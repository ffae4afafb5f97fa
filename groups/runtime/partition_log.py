"""The log of an internal topic, as a coordinator sees it, partition by partition.

`broker.coordinators.replicated_log` is the real one, `groups.runtime.memory_partition_log` its
twin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

TO_THE_END = 2**63 - 1
"""An end offset that no log reaches."""


class AppendDelayed(Exception):
    """Nothing can be appended now; the listener of `on_committed` is called when it can."""


class PartitionLog(Protocol):
    """The partitions of the topic that this broker leads. All calls may raise ApiError."""

    # ---- writing

    def append(self, partition: int, batch: bytes, now_ms: int) -> int:
        """Append one batch as with acks=all; return the offset of its last record.

        Raises AppendDelayed too.
        """

    def max_batch_bytes(self, partition: int) -> int:
        """Return the size of the largest batch that the partition takes."""

    def committed_end(self, partition: int) -> int:
        """Return the first offset that is not replicated, or not flushed if a flush is due."""

    def is_enough_in_sync(self, partition: int) -> bool:
        """Return whether at least min.insync.replicas replicas are in sync."""

    def commits_at_once(self, partition: int) -> bool:
        """Return whether `committed_end` is behind an append as soon as that has returned."""

    def on_committed(self, partition: int, listener: Callable[[], None]) -> None:
        """Call `listener` whenever `committed_end` may have moved. Called once per partition."""

    # ---- reading

    def start_offset(self, partition: int) -> int:
        """Return the log start offset."""

    def end_offset(self, partition: int) -> int:
        """Return the log end offset, replicated or not."""

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int = TO_THE_END
    ) -> bytes:
        """Return batches from the one that holds `offset` on, below `end_offset`; b"" at the end.

        The first is whole, however large it is; the last may be incomplete.
        """
