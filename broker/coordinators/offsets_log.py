"""The log of `__consumer_offsets` as the coordinator sees it: this broker's replicas of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.replication.replica_manager import ReplicaManager
from core_log.log import AppendLater
from groups.coordinator.offsets_log import NotYet
from offsets.topic import offsets_partition
from protocol.errors import ApiError, ErrorCode


@attrs.define(eq=False)
class ReplicatedOffsetsLog:
    """An `OffsetsLog` (groups.coordinator.offsets_log) over the replica manager."""

    replicas: ReplicaManager
    _listened: set[int] = attrs.field(factory=set)

    def append(self, partition: int, batch: bytes, now_ms: int) -> int:
        """Append a batch of ours; clients' batches are measured before they come this far."""
        most = self.max_batch_bytes(partition)
        if len(batch) > most:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes, {most} allowed")
        try:
            tp = offsets_partition(partition)
            return self.replicas.append_local(tp, batch, now_ms).last_offset
        except AppendLater as later:
            raise NotYet(str(later)) from later

    def max_batch_bytes(self, partition: int) -> int:
        """The topic's max.message.bytes."""
        return self.replicas.log(offsets_partition(partition)).config.max_message_bytes

    def committed_end(self, partition: int) -> int:
        """The high watermark."""
        return self.replicas.high_watermark(offsets_partition(partition))

    def is_enough_in_sync(self, partition: int) -> bool:
        """By the ISR that is written."""
        return self.replicas.partition(offsets_partition(partition)).is_enough_in_sync

    def on_committed(self, partition: int, listener: Callable[[], None]) -> None:
        """Listen, once: the replica manager keeps listeners over changes of leadership."""
        if partition not in self._listened:
            self._listened.add(partition)
            self.replicas.on_high_watermark(offsets_partition(partition), listener)

    def start_offset(self, partition: int) -> int:
        """The log start offset."""
        return self.replicas.log(offsets_partition(partition)).log_start_offset

    def end_offset(self, partition: int) -> int:
        """The log end offset: a new leader's high watermark lags behind what was acknowledged."""
        return self.replicas.log(offsets_partition(partition)).log_end_offset

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Read from the disk."""
        log = self.replicas.log(offsets_partition(partition))
        found = log.read(offset, max_bytes, log.log_end_offset, min_one=True)
        return b"" if found is None else found.read()
