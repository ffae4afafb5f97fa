"""The log of an internal topic in memory, replicated on demand: the twin of the broker's log."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from groups.runtime.partition_log import TO_THE_END, AppendDelayed
from protocol.errors import ApiError, ErrorCode
from protocol.records.batch import read_header


@attrs.define(eq=False)
class MemoryPartition:
    """One partition. `committed_end` is its high watermark."""

    batches: list[tuple[int, bytes]] = attrs.field(factory=list)
    end_offset: int = 0
    committed_end: int = 0
    failure: ErrorCode | None = None
    is_held: bool = False
    is_enough_in_sync: bool = True
    listener: Callable[[], None] | None = None


@attrs.define(eq=False)
class MemoryPartitionLog:
    """`replicas` > 1: an append waits for `replicate`. `fail` makes appends and reads fail."""

    replicas: int = 1
    batch_bytes: int = 1_048_588
    _partitions: dict[int, MemoryPartition] = attrs.field(factory=dict)

    # ---- PartitionLog

    def append(self, partition: int, batch: bytes, now_ms: int) -> int:
        """See PartitionLog."""
        log = self._serving(partition)
        if log.is_held:
            raise AppendDelayed
        if len(batch) > self.batch_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes")

        # The base offset lies outside the CRC: a leader stamps it.
        log.batches.append((log.end_offset, log.end_offset.to_bytes(8, "big") + batch[8:]))
        log.end_offset += read_header(batch).last_offset_delta + 1
        if self.replicas == 1:
            self.replicate(partition)
        return log.end_offset - 1

    def max_batch_bytes(self, partition: int) -> int:
        """See PartitionLog."""
        return self.batch_bytes

    def committed_end(self, partition: int) -> int:
        """See PartitionLog."""
        return self.partition(partition).committed_end

    def is_enough_in_sync(self, partition: int) -> bool:
        """See PartitionLog."""
        return self.partition(partition).is_enough_in_sync

    def commits_at_once(self, partition: int) -> bool:
        """See PartitionLog."""
        return self.replicas == 1 and self.is_enough_in_sync(partition)

    def on_committed(self, partition: int, listener: Callable[[], None]) -> None:
        """See PartitionLog."""
        self.partition(partition).listener = listener

    def start_offset(self, partition: int) -> int:
        """See PartitionLog."""
        return 0

    def end_offset(self, partition: int) -> int:
        """See PartitionLog."""
        return self.partition(partition).end_offset

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int = TO_THE_END
    ) -> bytes:
        """See PartitionLog."""
        batches = [
            batch
            for _, batch in self._serving(partition).batches
            if offset < read_header(batch).next_offset <= end_offset
        ]
        if not batches:
            return b""
        return b"".join(batches)[: max(max_bytes, len(batches[0]))]

    # ---- what a test does to the log

    def partition(self, partition: int) -> MemoryPartition:
        """Return the partition; create it if it is missing."""
        return self._partitions.setdefault(partition, MemoryPartition())

    def replicate(self, partition: int) -> None:
        """Replicate everything that is appended so far."""
        log = self.partition(partition)
        log.committed_end = log.end_offset
        if log.listener is not None:
            log.listener()

    def hold(self, partition: int) -> None:
        """Take no appends until `release`."""
        self.partition(partition).is_held = True

    def release(self, partition: int) -> None:
        """Take appends again, and call the listener."""
        log = self.partition(partition)
        log.is_held = False
        if log.listener is not None:
            log.listener()

    def fail(self, partition: int, error: ErrorCode | None) -> None:
        """Fail the appends and reads of a partition from now on; None: no longer."""
        self.partition(partition).failure = error

    def _serving(self, partition: int) -> MemoryPartition:
        log = self.partition(partition)
        if log.failure is not None:
            raise ApiError(log.failure, f"partition {partition}")
        return log
