"""When a log's bytes must reach the disk, and what has to be fsynced for that.

fsync takes milliseconds, so it never runs on the event loop: `Log.begin_flush` names the files,
`Flush.run` may run in another thread while appends go on, and `Log.end_flush` moves the recovery
point to what was there at the beginning. What a begun flush covers is no longer pending.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from core_log.config import LogConfig
from core_log.storage import Directory, StorageFile


@attrs.frozen
class Flush:
    """One flush: after `run`, everything below `end_offset` is on disk."""

    files: tuple[StorageFile, ...]
    directory: Directory | None
    end_offset: int
    truncations: int

    def run(self) -> None:
        """Fsync. Raises OSError, after which nothing is known of the bytes on disk."""
        for file in self.files:
            file.fsync()
        if self.directory is not None:
            self.directory.fsync_dir()


@attrs.define(eq=False)
class FlushState:
    """How far one log is flushed. `recovery_point` is the first offset not known to be on disk."""

    recovery_point: int
    begun_offset: int
    pending_since_ms: int
    truncations: int = 0
    names_changed: bool = True
    was_cut: bool = False

    @classmethod
    def start(cls, recovery_point: int, now_ms: int) -> FlushState:
        """A log with nothing under way."""
        return cls(recovery_point, recovery_point, now_ms)

    def appended(self, base_offset: int, now_ms: int) -> None:
        """Note when the oldest pending bytes came."""
        if base_offset <= self.begun_offset:
            self.pending_since_ms = now_ms

    def due(self, config: LogConfig, active_base: int, log_end_offset: int, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms is reached, or a segment was closed unflushed."""
        pending = log_end_offset - self.begun_offset
        return pending > 0 and (
            pending >= config.flush_messages
            or now_ms - self.pending_since_ms >= config.flush_ms
            or active_base > self.begun_offset
        )

    def first_offset(self) -> int:
        """Whose segment is the first to be flushed. Where the log was cut and a new segment begun,
        that is the one before: a power loss would bring back what was cut off."""
        return self.recovery_point - self.was_cut

    def begin(
        self, files: Sequence[StorageFile], directory: Directory, log_end_offset: int
    ) -> Flush:
        """The flush of all that is pending; the directory with it, if files were added."""
        changed, self.names_changed = self.names_changed, False
        self.was_cut = False
        self.begun_offset = log_end_offset
        return Flush(tuple(files), directory if changed else None, log_end_offset, self.truncations)

    def ended(self, flush: Flush) -> None:
        """Move the recovery point, unless the log was cut since and written anew."""
        if flush.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, flush.end_offset)

    def truncated(self, offset: int) -> None:
        """The log ends at `offset` now; a flush under way says nothing of what comes next."""
        self.truncations += 1
        self.names_changed = self.was_cut = True
        self.recovery_point = min(self.recovery_point, offset)
        self.begun_offset = min(self.begun_offset, offset)
