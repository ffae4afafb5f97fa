"""One of a broker's log directories: the logs in it, its checkpoints, and its clean-stop mark.

The mark `.kafka_cleanshutdown` is written last of all when a broker stops and removed when it has
loaded the logs again. Without it the logs are recovered from their recovery points on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import attrs

from core_log.checkpoint import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointError,
    decode_offsets,
    encode_offsets,
)
from core_log.config import LogConfig
from core_log.directory_name import Kind, parse
from core_log.loading import load_log
from core_log.log import Log
from core_log.storage import Directory
from protocol.topic_partition import TopicPartition

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

_log = logging.getLogger(__name__)


@attrs.frozen
class StoredLog:
    """A partition's directory, and what the checkpoints say of it."""

    topic_partition: TopicPartition
    directory: Directory
    recovery_point: int = 0
    log_start_offset: int = 0
    clean_shutdown: bool = True

    def load(self, config: LogConfig, now_ms: int) -> Log:
        """Open it. Raises OSError, and ValueError for files that are no log's."""
        return load_log(
            self.directory,
            self.topic_partition,
            config,
            recovery_point=self.recovery_point,
            clean_shutdown=self.clean_shutdown,
            now_ms=now_ms,
            log_start_offset=self.log_start_offset,
        )


@attrs.define(eq=False)
class LogDir:
    """A log directory and the logs that were opened in it."""

    directory: Directory
    logs: dict[TopicPartition, Log] = attrs.field(factory=dict)
    is_clean: bool = False
    _names_due: bool = False
    _checkpoints_due: bool = False

    @property
    def path(self) -> str:
        """Where it is."""
        return self.directory.path

    def stored_logs(self) -> tuple[list[StoredLog], list[str]]:
        """The partitions in it, and the names of directories that were being deleted.

        Raises DirectoryNameError when a directory is neither.
        """
        self.is_clean = self.directory.read(CLEAN_SHUTDOWN) is not None
        recovery_points = self.read_offsets(RECOVERY_POINTS)
        log_start_offsets = self.read_offsets(LOG_START_OFFSETS)
        found, leaving = [], []
        for name in self.directory.children():
            topic_partition, kind = parse(name)
            if kind is Kind.DELETED:
                leaving.append(name)
            elif kind is Kind.FUTURE:
                _log.warning("%s/%s is left alone: moves are not resumed", self.path, name)
            else:
                stored = StoredLog(
                    topic_partition,
                    self.directory.child(name),
                    recovery_points.get(topic_partition, 0),
                    log_start_offsets.get(topic_partition, 0),
                    self.is_clean,
                )
                found.append(stored)
        return found, leaving

    def clear_clean_mark(self) -> None:
        """The logs are open: a crash from now on is a crash, even after a power loss."""
        if self.is_clean:
            self.directory.remove(CLEAN_SHUTDOWN)
            self.directory.fsync_dir()

    def add(self, topic_partition: TopicPartition, config: LogConfig, now_ms: int) -> Log:
        """Make a new log. Raises OSError.

        `sync_names` makes it safe from a power loss, though nothing is ever written to it: a
        replica in sync that has no log is taken for one whose disk was lost.
        """
        stored = StoredLog(topic_partition, self.directory.child(str(topic_partition)))
        self.logs[topic_partition] = log = stored.load(config, now_ms)
        self._names_due = True
        return log

    def take_away(self, topic_partition: TopicPartition, new_name: str) -> None:
        """Rename a log's directory and forget the log. Raises OSError.

        The checkpoints must not speak of it when a partition of its name is made again; `tick`
        sees to that.
        """
        log = self.logs.pop(topic_partition)
        log.failure = "the partition was deleted"
        log.directory.rename_to(new_name)
        self._names_due = self._checkpoints_due = True

    def sync_names(self) -> None:
        """Make safe from a power loss which logs there are. Raises OSError."""
        if self._names_due:
            self.directory.fsync_dir()
            self._names_due = False

    def tick(self, now_ms: int) -> None:
        """Make deletions safe from a power loss, and remove files of deleted segments."""
        self.sync_names()
        if self._checkpoints_due:
            self._checkpoints_due = False
            self.checkpoint_recovery_points()
            cleaned = self.read_offsets(CLEANER_OFFSETS)
            if cleaned.keys() - self.logs.keys():
                kept = {tp: offset for tp, offset in cleaned.items() if tp in self.logs}
                self._write_offsets(CLEANER_OFFSETS, kept)
        for log in self.logs.values():
            log.tick(now_ms)

    def checkpoint_recovery_points(self) -> None:
        """Remember what is flushed, and where logs start that start within a segment."""
        logs = dict(self.logs)
        starts = {
            tp: log.log_start_offset
            for tp, log in logs.items()
            if log.log_start_offset > log.segments.first.base_offset
        }
        self._write_offsets(RECOVERY_POINTS, {tp: log.recovery_point for tp, log in logs.items()})
        self._write_offsets(LOG_START_OFFSETS, starts)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Remember those of the partitions in this directory; without any the file stays."""
        mine = {tp: offset for tp, offset in high_watermarks.items() if tp in self.logs}
        if mine:
            self._write_offsets(HIGH_WATERMARKS, mine)

    def read_offsets(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint of this directory; one that cannot be read counts as empty (KAFKA-1758)."""
        try:
            return decode_offsets(self.directory.read(name))
        except CheckpointError as error:
            _log.warning("%s/%s is ignored: %s", self.path, name, error)
            return {}

    def mark_clean(self) -> None:
        """Say that every log here was closed. The last thing to be done; raises OSError."""
        self.checkpoint_recovery_points()
        self.directory.write_atomic(CLEAN_SHUTDOWN, b"")
        self.directory.fsync_dir()

    def _write_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.directory.write_atomic(name, encode_offsets(offsets))
