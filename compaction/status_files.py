"""Keeps each log directory's `cleaner-status.json`, and knows what is in it."""

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
from protocol.topic_partition import TopicPartition

WRITE_INTERVAL_MS = 10_000
"""How often the files are written, whatever happens."""

logger = logging.getLogger(__name__)


@attrs.frozen
class StatusFile:
    """The file of one directory, as it is to be written."""

    log_dir: LogDir
    partitions: Mapping[str, CleanerStatus]
    written_ms: int

    def write(self) -> None:
        """Write it, in whatever thread; what cannot be written is written with the next."""
        directory = self.log_dir.directory
        try:
            directory.write_atomic(STATUS_FILE, encode_status(self.partitions, self.written_ms))
        except OSError as error:
            logger.warning("%s/%s cannot be written: %s", directory.path, STATUS_FILE, error)


@attrs.define(eq=False)
class StatusFiles:
    """The status by partition; of those that have their log here it is written down.

    `changed` is called when there is something to write.
    """

    logs: LogManager
    now_ms: Callable[[], int]
    changed: Callable[[], None] = lambda: None
    partitions: dict[TopicPartition, CleanerStatus] = attrs.field(factory=dict)
    _due: dict[LogDir, None] = attrs.field(factory=dict)

    def load(self) -> None:
        """Take over what was done by a broker that was here before. Why it could not do other
        things is not taken over: somebody may have seen to it."""
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
        """What there is to say of a log."""
        return self.partitions.get(topic_partition, CleanerStatus())

    def watch(self, log: Log) -> None:
        """A log is the cleaner's to look after, though there is nothing to say of it yet."""
        if log.topic_partition not in self.partitions:
            self._set(log)

    def set_running(self, log: Log, running: Running) -> None:
        """A cleaning is under way, and so far."""
        self._set(log, running=running)

    def set_finished(self, log: Log, done: Pass) -> None:
        """A cleaning came to its end: what spoke against the log does so no more."""
        self._set(log, last=done, running=None, quarantine=None)

    def clear_running(self, log: Log) -> None:
        """A cleaning is under way no more."""
        self._set(log, running=None)

    def quarantine(self, log: Log, reason: str) -> Quarantine:
        """A log cannot be cleaned; its quarantine."""
        found = next_quarantine(self.get(log.topic_partition).quarantine, reason, self.now_ms())
        self._set(log, running=None, quarantine=found)
        return found

    def take_due(self) -> list[StatusFile]:
        """The files that have something new to say; whoever takes them writes them."""
        due, self._due = self._due, {}
        for gone in self.partitions.keys() - self.logs.logs.keys():
            del self.partitions[gone]
        now_ms = self.now_ms()
        return [StatusFile(log_dir, self._of(log_dir), now_ms) for log_dir in due]

    def _of(self, log_dir: LogDir) -> dict[str, CleanerStatus]:
        return {str(tp): found for tp, found in self.partitions.items() if tp in log_dir.logs}

    def _set(self, log: Log, **changes: Any) -> None:
        tp = log.topic_partition
        self.partitions[tp] = attrs.evolve(self.get(tp), **changes)
        log_dir = self.logs.dir_of(tp)
        if log_dir is not None:
            self._due[log_dir] = None
            self.changed()
