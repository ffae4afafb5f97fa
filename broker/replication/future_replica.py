"""A replica on its way to another directory: a follower of the log beside it.

It does what a follower does with its leader, without a wire between them: it is cut where its
history and the current log's part (`truncation`), each time the current log was cut, and takes
what comes after. Which role the partition has meanwhile is nothing to it.
"""

from __future__ import annotations

import attrs

from broker.replication.partition import Partition, append_as_fetched
from broker.replication.truncation import truncation
from core_log.log import Log
from core_log.storage import FileRange
from protocol.topic_partition import TopicPartition

NEVER = -1


@attrs.define(eq=False)
class FutureReplica:
    """`log` is the future one, `partition.log` the current one."""

    partition: Partition
    log: Log
    trouble: str = ""  # what kept it from being moved when that was last tried
    _cut_for: int = NEVER  # so many truncations of the current log it has followed

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""
        return self.partition.topic_partition

    @property
    def is_aligned(self) -> bool:
        """Whether all that is in it was in the current log when it was last looked at."""
        return self._cut_for == self.partition.log.truncations

    def align(self) -> None:
        """Follow what was cut off from the current log at its end, and given up at its beginning.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        current, log = self.partition.log, self.log
        while not self.is_aligned:
            cut = truncation(
                *current.leader_epochs.end_offset_for(
                    log.leader_epochs.latest_epoch, current.log_end_offset
                ),
                log.leader_epochs,
                log.log_end_offset,
                self.partition.high_watermark,
            )
            log.truncate_to(min(cut.offset, current.log_end_offset))
            if cut.done:
                self._cut_for = current.truncations
        if log.log_end_offset < current.log_start_offset:
            log.truncate_fully_and_start_at(current.log_start_offset)
        log.increment_log_start_offset(min(current.log_start_offset, log.log_end_offset))

    def next_piece(self, max_bytes: int) -> FileRange | None:
        """What comes next in the current log, at least a batch; None: the future log has all."""
        current = self.partition.log
        return current.read(self.log.log_end_offset, max_bytes, current.log_end_offset)

    def append(self, piece: FileRange, now_ms: int) -> None:
        """Append a piece; in whatever thread, while nobody else touches the future log.

        Raises CorruptRecord, UnexpectedAppendOffset, OSError and ApiError KAFKA_STORAGE_ERROR; the
        first two also for a piece that was cut off while it was read, the second also for one that
        is to be the first and has to be given to `append_first`.
        """
        self.log.append_follower(memoryview(piece.read()), now_ms=now_ms)

    def append_first(self, piece: FileRange, now_ms: int) -> None:
        """Append a piece, for which an empty log may begin earlier. Raises as `append`."""
        append_as_fetched(self.log, memoryview(piece.read()), now_ms)

    @property
    def needs_cut(self) -> bool:
        """Whether `align` has something to cut, which is work for a thread."""
        return not self.is_aligned or self.log.log_end_offset < self.partition.log.log_start_offset

    def lacks_less(self, max_bytes: int) -> bool:
        """Whether it lacks less than `max_bytes` of the current log."""
        end, current = self.log.log_end_offset, self.partition.log
        return current.bytes_between(end, current.log_end_offset, max_bytes) < max_bytes
