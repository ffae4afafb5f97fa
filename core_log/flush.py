"""Decide when a log's bytes must reach the disk, and which files an fsync needs.

fsync takes milliseconds, so it never runs on the event loop. `Log.begin_flush` names the files,
`Flush.run` may run in another thread while appends go on, and `Log.end_flush` moves the recovery
point to the end that the log had at the beginning. Bytes that a begun flush covers are no longer
pending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from core_log.config import LogConfig
from core_log.leader_epochs import LeaderEpochs
from core_log.producers.producer_snapshots import Snapshot
from core_log.segments.segment import Segment
from core_log.storage import Directory, StorageFile, sync
from protocol.frozen import frozen

SYNCED_AHEAD_BYTES = 8 * 2**20
"""A log that hides holes is flushed when so much is pending. Its appends wait for a flush when the
next segment begins (AppendLater), and this bounds what that flush has to sync."""


@frozen
class Flush:
    """One flush: after `run`, everything below `end_offset` is on disk."""

    files: tuple[StorageFile, ...]
    epochs: LeaderEpochs
    directory: Directory | None
    end_offset: int
    truncations: int
    name_changes: int
    bad_indexes: Sequence[Segment]
    """Segments whose indexes this flush rebuilds."""
    snapshots: Sequence[Snapshot] = ()
    """The snapshots of producers that it writes."""

    def run(self) -> None:
        """Write the leader epochs and the snapshots, and fsync, in any thread.

        Raises OSError. After SyncFailed it is unknown which bytes are on disk.
        """
        # A rebuild reads a whole segment: it has waited for a thread. It makes new files.
        rebuilt: list[StorageFile] = []
        for segment in self.bad_indexes:
            segment.rebuild_bad_indexes()
            rebuilt += segment.files_to_flush()

        written = [snapshot.write() for snapshot in self.snapshots]

        # The epochs of batches are on disk before these count as flushed.
        self.epochs.save()
        for file in (*rebuilt, *written, *self.files):
            sync(file)
        if self.directory is not None:
            self.directory.fsync_dir()


@attrs.define(eq=False)
class FlushState:
    """The flushed part of one log.

    `recovery_point` is the first offset that is not known to be on disk, `begun_offset` the end of
    the latest flush that began. `name_changes` counts changes of file names, `safe_names` those
    that a power loss cannot undo. `has_closed` is set while a closed segment is not flushed.
    """

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
        """Create the state of a log with no flush in flight."""
        return cls(recovery_point, recovery_point, monotonic_ms)

    def note_append(self, base_offset: int, size: int, monotonic_ms: Callable[[], int]) -> None:
        """Count pending bytes, and note when the oldest of them came."""
        self.pending_bytes += size
        # These are the first bytes that no flush covers.
        if base_offset <= self.begun_offset:
            self.pending_since_ms = monotonic_ms()

    def is_due(
        self, config: LogConfig, active_base: int, log_end_offset: int, monotonic_ms: int
    ) -> bool:
        """True if a flush should begin.

        Either flush.messages or flush.ms is reached, or a segment was closed unflushed, or much is
        pending in a log that must be on disk before its next segment begins.
        """
        pending = log_end_offset - self.begun_offset
        return pending > 0 and (
            pending >= config.flush_messages
            or monotonic_ms - self.pending_since_ms >= config.flush_ms
            or active_base > self.begun_offset
            or (config.hides_holes and self.pending_bytes >= SYNCED_AHEAD_BYTES)
        )

    def durable_end_offset(self, config: LogConfig, log_end_offset: int) -> int:
        """Return the end of what counts as durable, exclusive.

        This is the log's end if flush.messages allows for the unflushed records.
        """
        unflushed = log_end_offset - self.recovery_point
        return log_end_offset if unflushed < config.flush_messages else self.recovery_point

    def first_offset(self) -> int:
        """Return an offset in the first segment to flush.

        After a new segment was begun that is the one before it: its batches may be on disk, but
        its indexes are not.
        """
        return self.recovery_point - self.has_closed

    @property
    def names_are_safe(self) -> bool:
        """True if a power loss leaves exactly the files that the log has."""
        return self.safe_names == self.name_changes

    def make_names_safe(self, directory: Directory) -> None:
        """Sync the directory, before another segment comes or goes.

        Otherwise a power loss may keep that segment without those before it, or the other way
        round: a hole. As flushes come between, this seldom does anything. Raises OSError.
        """
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
        snapshots: Sequence[Snapshot],
    ) -> Flush:
        """Begin a flush of all pending bytes. The directory is synced too if names changed."""
        assert self.recovery_point <= log_end_offset
        self.has_closed = False
        self.begun_offset = log_end_offset
        self.pending_bytes = 0
        # Writing the epochs renames a file, and a rebuild makes some: the directory is synced too.
        if bad_indexes or not epochs.is_saved:
            self.name_changes += 1

        return Flush(
            tuple(files),
            epochs,
            None if self.names_are_safe else directory,
            log_end_offset,
            self.truncations,
            self.name_changes,
            bad_indexes,
            tuple(snapshots),
        )

    def finish(self, flush: Flush) -> None:
        """Move the recovery point, unless the log was truncated and written again since."""
        self.safe_names = max(self.safe_names, flush.name_changes)
        # The flushed bytes may be truncated, and others have their offsets.
        if flush.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def fail(self) -> None:
        """Note that a flush has failed: all from the recovery point on waits for the next one."""
        self.begun_offset = self.recovery_point
        # A closed segment may be among what is not on disk.
        self.has_closed = True

    def truncate(self, offset: int) -> None:
        """Note that the log ends at `offset`. A flush in flight does not count for later bytes."""
        self.truncations += 1
        self.name_changes += 1
        self.recovery_point = min(self.recovery_point, offset)
        self.begun_offset = min(self.begun_offset, offset)
