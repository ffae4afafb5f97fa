"""The future log of a replica that is moved to another directory, and its progress.

The future log follows the current log as a follower follows its leader, without a wire: each time
the current log was truncated it is truncated where the two histories diverge (`truncation`), and
then copies the records after its end. The role of the partition makes no difference.
"""

from __future__ import annotations

import attrs

from broker.replication.partition import Partition, append_as_fetched
from broker.replication.truncation import decide_truncation
from core_log.log import Log
from core_log.storage import FileRange
from protocol.topic_partition import TopicPartition

NEVER = -1


@attrs.define(eq=False)
class FutureReplica:
    """A replica that is moved: `log` is the future log, `partition.log` the current one."""

    partition: Partition
    log: Log
    trouble: str = ""
    """Why the last attempt to copy failed."""
    _followed_truncations: int = NEVER
    """Truncations of the current log that the future log has followed."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the replica."""
        return self.partition.topic_partition

    @property
    def is_aligned(self) -> bool:
        """True if the current log was not truncated since the last `align`."""
        return self._followed_truncations == self.partition.log.truncations

    def align(self) -> None:
        """Truncate the future log at both ends as the current log was.

        Raises ApiError KAFKA_STORAGE_ERROR.
        """
        current = self.partition.log
        log = self.log

        # The end: go back, epoch by epoch, to where the histories diverge.
        while not self.is_aligned:
            step = decide_truncation(
                *current.leader_epochs.end_offset_for(
                    log.leader_epochs.latest_epoch, current.log_end_offset
                ),
                log.leader_epochs,
                log.log_end_offset,
                self.partition.high_watermark,
            )
            # The histories may agree beyond the current log's end.
            log.truncate_to(min(step.offset, current.log_end_offset))
            if step.done:
                self._followed_truncations = current.truncations

        # The beginning: drop what retention deleted from the current log.
        if log.log_end_offset < current.log_start_offset:
            # Retention has overtaken the copying.
            log.truncate_fully_and_start_at(current.log_start_offset)
        log.increment_log_start_offset(min(current.log_start_offset, log.log_end_offset))

    def read_next_piece(self, max_bytes: int) -> FileRange | None:
        """Return the next bytes of the current log, a batch at least; None at its end."""
        current = self.partition.log
        return current.read(self.log.log_end_offset, max_bytes, current.log_end_offset)

    def append(self, piece: FileRange, now_ms: int) -> None:
        """Append a piece. Any thread may call it while no other uses the future log.

        Raises CorruptRecord, UnexpectedAppendOffset, OSError, and ApiError KAFKA_STORAGE_ERROR.
        CorruptRecord and UnexpectedAppendOffset may also mean that the current log was truncated
        while the piece was read. UnexpectedAppendOffset may also mean that the piece is the first,
        and needs `append_first`.
        """
        self.log.append_follower(memoryview(piece.read()), now_ms=now_ms)

    def append_first(self, piece: FileRange, now_ms: int) -> None:
        """Append a piece; an empty log may begin earlier for it. Raises as `append` does."""
        append_as_fetched(self.log, memoryview(piece.read()), now_ms)

    @property
    def needs_truncation(self) -> bool:
        """True if `align` has something to truncate, which is work for a thread."""
        return not self.is_aligned or self.log.log_end_offset < self.partition.log.log_start_offset

    def lacks_less_than(self, max_bytes: int) -> bool:
        """Return whether less than `max_bytes` of the current log are left to copy."""
        end = self.log.log_end_offset
        current = self.partition.log
        return current.bytes_between(end, current.log_end_offset, max_bytes) < max_bytes
