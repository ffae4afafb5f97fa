"""The log of an internal topic as its coordinator sees it: this broker's replicas."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from broker.replication.replica_manager import ReplicaManager
from core_log.log import AppendLater
from groups.runtime.partition_log import TO_THE_END, AppendDelayed
from protocol.errors import ApiError, ErrorCode
from protocol.topic_partition import TopicPartition


class _Names(dict[int, TopicPartition]):
    """The partitions of a topic by number, each made when it is first asked for."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self._topic = topic

    def __missing__(self, partition: int) -> TopicPartition:
        name = self[partition] = TopicPartition(self._topic, partition)
        return name


@attrs.define(eq=False)
class ReplicatedLog:
    """A `PartitionLog` (groups.runtime.partition_log) over the replica manager."""

    replicas: ReplicaManager
    topic: str
    _listened: set[int] = attrs.field(factory=set)
    _names: _Names = attrs.field(
        init=False, default=attrs.Factory(lambda self: _Names(self.topic), takes_self=True)
    )

    # ---- commits

    def append(self, partition: int, batch: bytes, now_ms: int) -> int:
        """Append a batch of a coordinator; the validator measures only batches of clients."""
        name = self._names[partition]
        max_bytes = self.replicas.log(name).config.max_message_bytes
        if len(batch) > max_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{len(batch)} bytes, {max_bytes} allowed")

        try:
            appended = self.replicas.append_local(name, batch, now_ms)
        except AppendLater as later:
            # The journal keeps the batch until a flush has ended.
            raise AppendDelayed(str(later)) from later
        return appended.last_offset

    def max_batch_bytes(self, partition: int) -> int:
        """Return the topic's max.message.bytes."""
        return self.replicas.log(self._names[partition]).config.max_message_bytes

    def committed_end(self, partition: int) -> int:
        """Return the high watermark."""
        return self.replicas.high_watermark(self._names[partition])

    def is_enough_in_sync(self, partition: int) -> bool:
        """Return whether the ISR in ZooKeeper has at least min.insync.replicas replicas."""
        return self.replicas.partition(self._names[partition]).is_enough_in_sync

    def commits_at_once(self, partition: int) -> bool:
        """Return whether no replica and no flush is waited for."""
        return self.replicas.partition(self._names[partition]).commits_at_once

    def on_committed(self, partition: int, listener: Callable[[], None]) -> None:
        """Listen, once per partition: the replica manager keeps listeners across leaders."""
        if partition not in self._listened:
            self._listened.add(partition)
            self.replicas.on_high_watermark(self._names[partition], listener)

    # ---- loading

    def start_offset(self, partition: int) -> int:
        """Return the log start offset."""
        return self.replicas.log(self._names[partition]).log_start_offset

    def end_offset(self, partition: int) -> int:
        """Return the log end offset: a new leader's high watermark lags behind it."""
        return self.replicas.log(self._names[partition]).log_end_offset

    def read(
        self, partition: int, offset: int, max_bytes: int, end_offset: int = TO_THE_END
    ) -> bytes:
        """Read batches from the disk."""
        # A new leader loads to the end of its log: all of it will be committed.
        log = self.replicas.log(self._names[partition])
        end_offset = min(end_offset, log.log_end_offset)
        file_range = log.read(offset, max_bytes, end_offset, min_one=True)
        return b"" if file_range is None else file_range.read()
