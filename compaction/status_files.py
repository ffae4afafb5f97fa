"""Keep each log directory's `cleaner-status.json`, and its contents in memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from compaction.quarantine import Quarantine, next_quarantine
from compaction.status import (
    STATUS_FILE,
    CleanerStatus,
    Pass,
    Running,
    StatusError,
    decode_status,
    encode_status,
)
from core_log.log import Log
from core_log.log_dir import LogDir
from core_log.log_manager import LogManager
from protocol.frozen import frozen
from protocol.topic_partition import TopicPartition

WRITE_INTERVAL_MS = 10_000
"""Shortest time between two writes of the files."""

logger = logging.getLogger(__name__)


@frozen
class StatusFile:
    """The file of one directory, with the contents to write."""

    log_dir: LogDir
    partitions: Mapping[str, CleanerStatus]
    written_ms: int

    def write(self) -> None:
        """Write the file, in any thread. A failure is logged, and the next write repeats it."""
        directory = self.log_dir.directory
        try:
            directory.write_atomic(STATUS_FILE, encode_status(self.partitions, self.written_ms))
        except OSError as error:
            logger.warning("%s/%s cannot be written: %s", directory.path, STATUS_FILE, error)


@attrs.define(eq=False)
class StatusFiles:
    """The status of each partition. It is written for those that have their log here.

    `changed` is called when there is something to write.
    """

    logs: LogManager
    now_ms: Callable[[], int]
    changed: Callable[[], None] = lambda: None
    partitions: dict[TopicPartition, CleanerStatus] = attrs.field(factory=dict)
    _due: dict[LogDir, None] = attrs.field(factory=dict)

    def load(self) -> None:
        """Take over the finished cleanings of an earlier broker here.

        Its quarantines are not taken over, for somebody may have seen to their reasons.
        """
        for log_dir in self.logs.dirs:
            try:
                stored = decode_status(log_dir.directory.read(STATUS_FILE))
            except (StatusError, OSError) as error:
                logger.warning("%s/%s is ignored: %s", log_dir.path, STATUS_FILE, error)
                continue

            for tp in log_dir.logs:
                if str(tp) in stored and stored[str(tp)].last is not None:
                    self.partitions[tp] = CleanerStatus(stored[str(tp)].last)

    def get(self, topic_partition: TopicPartition) -> CleanerStatus:
        """Return the status of a log."""
        return self.partitions.get(topic_partition, CleanerStatus())

    def watch(self, log: Log) -> None:
        """Note a log that the cleaner looks after, even if nothing has happened to it."""
        if log.topic_partition not in self.partitions:
            self._set(log)

    def set_running(self, log: Log, running: Running) -> None:
        """Note how far a cleaning is."""
        self._set(log, running=running)

    def set_finished(self, log: Log, done: Pass) -> None:
        """Note that a cleaning has finished. A quarantine of the log ends."""
        self._set(log, last=done, running=None, quarantine=None)

    def clear_running(self, log: Log) -> None:
        """Note that a cleaning was aborted."""
        self._set(log, running=None)

    def quarantine(self, log: Log, reason: str) -> Quarantine:
        """Put a log that cannot be cleaned in quarantine."""
        before = self.get(log.topic_partition).quarantine
        quarantine = next_quarantine(before, reason, self.now_ms())
        self._set(log, running=None, quarantine=quarantine)
        return quarantine

    def take_due(self) -> list[StatusFile]:
        """Take the files that have changed. The caller writes them."""
        due = self._due
        self._due = {}

        # Of deleted logs nothing is kept.
        for deleted in self.partitions.keys() - self.logs.logs.keys():
            del self.partitions[deleted]
        now_ms = self.now_ms()
        return [StatusFile(log_dir, self._of(log_dir), now_ms) for log_dir in due]

    def _of(self, log_dir: LogDir) -> dict[str, CleanerStatus]:
        return {
            str(topic_partition): status
            for topic_partition, status in self.partitions.items()
            if topic_partition in log_dir.logs
        }

    def _set(self, log: Log, **changes: Any) -> None:
        tp = log.topic_partition
        self.partitions[tp] = attrs.evolve(self.get(tp), **changes)
        # A log that has gone from here is in no file.
        log_dir = self.logs.dir_of(tp)
        if log_dir is not None:
            self._due[log_dir] = None
            self.changed()
