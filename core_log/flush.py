"""When a log's bytes must reach the disk, and what has to be fsynced for that.

fsync takes milliseconds, so it never runs on the event loop: `Log.begin_flush` names the files,
`Flush.run` may run in another thread while appends go on, and `Log.end_flush` moves the recovery
point to what was there at the beginning. What a begun flush covers is no longer pending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from core_log.config import LogConfig
from core_log.leader_epochs import LeaderEpochs
from core_log.segments.segment import Segment
from core_log.storage import Directory, StorageFile, sync

SYNCED_AHEAD_BYTES = 8 * 2**20
"""Most of a log that hides holes that may be left to be synced on the loop."""


@attrs.frozen
class Flush:
    """One flush: after `run`, everything below `end_offset` is on disk."""

    files: tuple[StorageFile, ...]
    epochs: LeaderEpochs
    directory: Directory | None
    end_offset: int
    truncations: int
    name_changes: int
    bad_indexes: Sequence[Segment]
    """Segments whose indexes are made anew on this occasion."""

    def run(self) -> None:
        """Write the leader epochs and fsync. Raises OSError; after SyncFailed nothing is known of
        the bytes on disk."""
        for segment in self.bad_indexes:
            segment.mend_indexes()
        self.epochs.save()
        for file in self.files:
            sync(file)
        if self.directory is not None:
            self.directory.fsync_dir()


@attrs.define(eq=False)
class FlushState:
    """How far one log is flushed. `recovery_point` is the first offset not known to be on disk."""

    recovery_point: int
    begun_offset: int
    pending_since_ms: int
    pending_bytes: int = 0
    truncations: int = 0
    name_changes: int = 1
    safe_names: int = 0
    has_closed: bool = False

    @classmethod
    def start(cls, recovery_point: int, monotonic_ms: int) -> FlushState:
        """A log with nothing under way."""
        return cls(recovery_point, recovery_point, monotonic_ms)

    def note_append(self, base_offset: int, size: int, monotonic_ms: Callable[[], int]) -> None:
        """Note how much is pending, and when the oldest of it came."""
        self.pending_bytes += size
        if base_offset <= self.begun_offset:
            self.pending_since_ms = monotonic_ms()

    def is_due(
        self, config: LogConfig, active_base: int, log_end_offset: int, monotonic_ms: int
    ) -> bool:
        """Whether flush.messages or flush.ms is reached, or a segment was closed unflushed; or much
        is pending of a log that is synced on the loop when its next segment begins."""
        pending = log_end_offset - self.begun_offset
        return pending > 0 and (
            pending >= config.flush_messages
            or monotonic_ms - self.pending_since_ms >= config.flush_ms
            or active_base > self.begun_offset
            or (config.hides_holes and self.pending_bytes >= SYNCED_AHEAD_BYTES)
        )

    def durable_end_offset(self, config: LogConfig, log_end_offset: int) -> int:
        """The end of what may be counted as kept: the log's, if flush.messages allows for what is
        not on disk."""
        unflushed = log_end_offset - self.recovery_point
        return log_end_offset if unflushed < config.flush_messages else self.recovery_point

    def first_offset(self) -> int:
        """Whose segment is the first to be flushed. Where a new one was begun, that is the one
        before: its batches may be on disk, its indexes are not."""
        return self.recovery_point - self.has_closed

    @property
    def names_are_safe(self) -> bool:
        """Whether a power loss leaves all files that the log has, and none it has not."""
        return self.safe_names == self.name_changes

    def make_names_safe(self, directory: Directory) -> None:
        """To be called before another segment comes or goes, or a power loss may leave that one
        without those before it, or take it and leave those: a hole. Seldom does anything: a flush
        comes between. Raises OSError."""
        if not self.names_are_safe:
            directory.fsync_dir()
            self.safe_names = self.name_changes

    def begin(
        self,
        files: Sequence[StorageFile],
        epochs: LeaderEpochs,
        directory: Directory,
        log_end_offset: int,
        bad_indexes: Sequence[Segment],
    ) -> Flush:
        """The flush of all that is pending; the directory with it, if files were added."""
        self.has_closed = False
        self.begun_offset, self.pending_bytes = log_end_offset, 0
        if not epochs.is_saved:
            self.name_changes += 1
        return Flush(
            tuple(files),
            epochs,
            None if self.names_are_safe else directory,
            log_end_offset,
            self.truncations,
            self.name_changes,
            bad_indexes,
        )

    def finish(self, flush: Flush) -> None:
        """Move the recovery point, unless the log was cut since and written anew."""
        self.safe_names = max(self.safe_names, flush.name_changes)
        if flush.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def fail(self) -> None:
        """A flush has come to nothing: all from the recovery point on waits for the next one."""
        self.begun_offset, self.has_closed = self.recovery_point, True

    def truncate(self, offset: int) -> None:
        """The log ends at `offset` now; a flush under way says nothing of what comes next."""
        self.truncations += 1
        self.name_changes += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.begun_offset = min(self.begun_offset, offset)
